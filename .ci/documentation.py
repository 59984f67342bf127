"""The documentation of several versions side by side, with a page that lists them.

    python .ci/documentation.py SITE                  of HEAD, in SITE/VERSION
    python .ci/documentation.py SITE v0.2.0 v0.3.0    of tags

Each commit is built in a copy of its own. SITE/index.html lists all versions that are there, also
from earlier runs, and every page leads to it; SITE/stable is the newest release. What is made needs
no network; with --offline, nor does making it, but links to other projects then are plain text.
Needs the extra `doc`.
"""

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from html import escape
from pathlib import Path

from packaging.version import InvalidVersion, Version

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>skvbgp: versions of the documentation</title>
<style>body {{ font: 1.1rem/1.6 sans-serif; margin: 3rem auto; width: 20rem }}</style>
<h1>skvbgp</h1>
<p>Documentation of these versions:</p>
<ul>
{items}
</ul>
</html>
"""


def main():
    """Run the command."""
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("site", type=Path)
    cli.add_argument("commits", nargs="*", default=["HEAD"])
    cli.add_argument("--offline", action="store_true")
    args = cli.parse_args()
    args.site.mkdir(parents=True, exist_ok=True)
    for commit in args.commits:
        build(commit, args.site.resolve(), ["-t", "offline"] if args.offline else [])
    list_versions(args.site)


def build(commit, site, options):
    """Make the pages of a commit in the folder of its version."""
    archive = subprocess.run(["git", "archive", commit], check=True, stdout=subprocess.PIPE)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        text = Path(folder, "skvbgp", "__init__.py").read_text("utf-8")
        version = re.search(r'^__version__ = "(.+)"$', text, re.M).group(1)
        options = ["-d", Path(folder, "doctrees"), *options]  # by default among the pages
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "-t", "site", *options]
        env = os.environ | {"PYTHONPATH": folder}
        subprocess.run([*command, "doc", site / version], check=True, cwd=folder, env=env)


def list_versions(site):
    """Write the page with the versions, newest first, and let `stable` be the newest release."""
    versions = sorted(filter(None, map(as_version, site.iterdir())), reverse=True)
    releases = [version for version in versions if not version.is_prerelease]
    items = []
    for version in versions:
        note = ", the newest release" if releases and version == releases[0] else ""
        name = escape(str(version))
        items.append(f'<li><a href="{name}/index.html">{name}</a>{note}</li>')
    (site / "index.html").write_text(PAGE.format(items="\n".join(items)), encoding="utf-8")
    if releases:
        (site / "stable").unlink(missing_ok=True)
        (site / "stable").symlink_to(str(releases[0]), target_is_directory=True)


def as_version(folder):
    """The version that a folder is named after, if it is."""
    try:
        version = Version(folder.name)
    except InvalidVersion:
        return None
    return version if str(version) == folder.name and folder.is_dir() else None


if __name__ == "__main__":
    main()
