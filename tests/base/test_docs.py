"""A docstring that is completed from that of another class."""

import inspect

import pytest

from skvbgp.base import documented_like


class First:
    """The first one.

    Parameters
    ----------
    a : int, default=1
        Of both.

        With a second paragraph.

    b : int, default=2
        Of the first.

    Attributes
    ----------
    mean_ : float
        Of both.

    own_ : float
        Of the first alone.

    scale_ : float
        As the first has it.

    Notes
    -----
    Of both.

    Examples
    --------
    >>> First(a=1)
    """

    def __init__(self, a=1, b=2):
        pass


COMPLETE = """\
The second one.

Parameters
----------
c : int, default=3
    New.

b : int, default=4
    Another default.

a : int, default=1
    Of both.

    With a second paragraph.

Attributes
----------
new_ : float
    New.

mean_ : float
    Of both.

scale_ : float
    Another one.

Notes
-----
Of both.

Examples
--------
>>> Second(a=1)
"""


def make_second():
    class Second:
        """The second one.

        Parameters
        ----------
        b : int, default=4
            Another default.

        c : int, default=3
            New.

        Attributes
        ----------
        scale_ : float
            Another one.

        new_ : float
            New.
        """

        def __init__(self, c=3, b=4, a=1):
            pass

    return Second


def test_entries_that_are_the_same_come_from_the_first_class():
    """Parameters in the order of the constructor, and the example by its own name."""
    before = First.__doc__
    second = documented_like(First, without=["own_"])(make_second())
    assert second.__doc__ == COMPLETE
    assert First.__doc__ == before


def test_a_parameter_that_nobody_describes_is_an_error():
    second = make_second()
    second.__doc__ = second.__doc__.replace("c : int", "d : int")
    with pytest.raises(KeyError, match="c"):
        documented_like(First)(second)


def test_without_docstrings():
    """As with python -OO."""
    second = make_second()
    second.__doc__ = None
    assert documented_like(First)(second).__doc__ is None
    assert inspect.signature(second).parameters.keys() == {"c", "b", "a"}
