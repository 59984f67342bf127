"""What a posterior says of means alone."""

from numpy.testing import assert_allclose


def check_means(posterior, places):
    """They are those of its moments, by its own way to them."""
    for include_noise in (False, True):
        expected, _ = posterior.moments(places, include_noise)
        found = posterior.predict_mean(places, include_noise)
        assert_allclose(found, expected, rtol=1e-12)
