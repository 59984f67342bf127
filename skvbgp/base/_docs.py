"""Docstrings of classes that differ in little: what they have in common is written in the first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection

#: By section, or by parameter or attribute: its text.
_Texts = dict[str, str]


def documented_like(first: type, *, without: Collection[str] = ()) -> Callable[[type], type]:
    """Class decorator that completes a docstring with what that of another class says, too.

    Written out are the parameters, attributes and other sections that differ; an example is that of
    the first class with the name of this one. All parameters of the constructor are described, in
    its order, and all attributes of the first class but those that this one is ``without``.
    """

    def decorate(cls: type) -> type:
        if cls.__doc__ is None or first.__doc__ is None:  # python -OO has none
            return cls
        (summary, own), (_, known) = _split(cls.__doc__), _split(first.__doc__)
        known["Examples"] = known["Examples"].replace(first.__name__, cls.__name__)
        sections = known | own
        parameters = _merge(own, known, "Parameters")
        names = inspect.signature(cls).parameters
        sections["Parameters"] = "\n\n".join(parameters[name] for name in names)
        attributes = _merge(own, known, "Attributes").items()
        sections["Attributes"] = "\n\n".join(
            text for name, text in attributes if name not in without
        )
        parts = (f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections.items())
        cls.__doc__ = "\n\n".join([summary, *parts]) + "\n"
        return cls

    return decorate


def _split(doc: str) -> tuple[str, _Texts]:
    """What a docstring says first, and its sections."""
    summary, *rest = re.split(r"\n\n(\w+)\n-+\n", inspect.cleandoc(doc))
    return summary, dict(zip(rest[::2], rest[1::2], strict=True))


def _merge(own: _Texts, known: _Texts, title: str) -> _Texts:
    """Entries of a section: new ones, and then the known ones or what takes their place."""
    mine, theirs = ({e.partition(" : ")[0]: e for e in _list(s, title)} for s in (own, known))
    return {name: mine[name] for name in mine if name not in theirs} | theirs | mine


def _list(sections: _Texts, title: str) -> list[str]:
    """Entries of a section, each of which begins at the margin."""
    return re.split(r"\n\n(?=\S)", sections[title]) if title in sections else []
