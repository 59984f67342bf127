"""Print the lower bounds of what skvbgp and its tests need, as constraints for pip."""

import re
import tomllib
from pathlib import Path

text = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
project = tomllib.loads(text)["project"]
for requirement in [*project["dependencies"], *project["optional-dependencies"]["test"]]:
    print(re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement).expand(r"\1==\2"))
