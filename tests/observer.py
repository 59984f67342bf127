"""A callback that does nothing."""


class Observer:
    """What a test's callback has besides the methods that it is about."""

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass
