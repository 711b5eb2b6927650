"""The stubs of a recording: shell programs that write down how they were called."""

from __future__ import annotations

from safelaunch.importer.activities import NO_OPS, WRAPPERS, launcher_names

# A call is one file of parts that end in NUL: folder, number of words, words, environment. Absolute
# paths, since the script may have changed PATH; the file has its name only when it is complete.
_RECORD = """\
record() {{
  f={place}/calls/$$
  {{ printf '%s\\0' "$(pwd)" $# "${{0##*/}}" "$@"; \
/bin/cat /proc/self/environ; }} >"$f.part"
  /bin/mv "$f.part" "$f.call"
  exit 0
}}
"""
_HEAD = "#!/bin/sh\n"
_LAUNCHER = _HEAD + _RECORD + 'record "$@"\n'
_NO_OP = _HEAD + "printf '%s\\n' \"${{0##*/}}\" >>{place}/calls/no-ops\n"
_WRAPPER = _HEAD + _RECORD + (
    'for word; do\n  case ${{word##*/}} in {launchers}) record "$@" ;; esac\ndone\n'
    'exec {real} "$@"\n'
)  # fmt: skip
# code on the command line and questions about the version are no jobs: the real Python answers
_PYTHON = (
    _HEAD + _RECORD + 'case "$1" in -c|-|-V|--version|"") exec {real} "$@" ;; esac\nrecord "$@"\n'
)
PYTHONS = ("python", "python3", *(f"python3.{minor}" for minor in range(8, 16)))
# `kill` is a builtin, which only this takes away: `kill -9 -1` would end the recording
BASH_ENV = "enable -n kill 2>/dev/null\n"


def stub_files(place: str, programs: dict[str, str]) -> dict[str, str]:
    """Return the files of the stubs; `programs` are the real ones by name."""
    files = {"bash_env": BASH_ENV}
    for name in NO_OPS:
        files[f"stubs/{name}"] = _NO_OP.format(place=place)
    launchers = "|".join(sorted((*launcher_names(), "python*")))
    for name in WRAPPERS:
        real = programs.get(name, "/bin/false")
        files[f"stubs/{name}"] = _WRAPPER.format(place=place, launchers=launchers, real=real)
    for name in launcher_names():
        files[f"stubs/{name}"] = _LAUNCHER.format(place=place)
    for name in PYTHONS:
        real = programs.get("python3", "/bin/true")
        files[f"stubs/{name}"] = _PYTHON.format(place=place, real=real)
    return files
