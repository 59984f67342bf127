"""Callbacks: one that does nothing, and one that looks at the passes of a fit."""


class Observer:
    """What a test's callback has besides the methods that it is about."""

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        pass


class Recorder(Observer):
    """Keeps the models of all passes, or what they predict at T, and may stop after one of them."""

    def __init__(self, T=None, stop_after=None):
        self.T, self.stop_after, self.models = T, stop_after, []

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.parent is None or fitted_estimator is None:
            return False
        model = fitted_estimator
        self.models.append(model if self.T is None else model.predict(self.T))
        return len(self.models) == self.stop_after
