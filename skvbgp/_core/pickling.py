"""What is pickled of a value."""

from __future__ import annotations

from dataclasses import Field
from typing import Any, ClassVar


class PickledByFields:
    """Base of frozen dataclasses that are copied and pickled without what they have cached."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
