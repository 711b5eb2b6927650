"""The standard library's top-level modules, with the versions that added or removed them.

Versions are those of the `What's New in Python` pages. A removed module may still be importable:
setuptools has a `distutils`, and PyPI has copies of others; check on the target before reporting.
"""

from __future__ import annotations

import sys

REMOVED = {
    **dict.fromkeys(("dummy_threading", "_dummy_threading"), "3.9"),
    **dict.fromkeys(("formatter", "parser", "symbol"), "3.10"),
    "binhex": "3.11",
    **dict.fromkeys(("asynchat", "asyncore", "distutils", "imp", "smtpd"), "3.12"),
    **dict.fromkeys((
        "aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3", "mailcap",
        "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau", "telnetlib",
        "uu", "xdrlib",
    ), "3.13"),
}  # fmt: skip
ADDED = {"graphlib": "3.9", "zoneinfo": "3.9", "tomllib": "3.11", "annotationlib": "3.14",
         "compression": "3.14"}  # fmt: skip
# the program itself is always there, and in none of Python's own lists
NAMES = frozenset(sys.stdlib_module_names) | REMOVED.keys() | ADDED.keys() | {"__main__"}

# Loaded before a script begins, so no file next to it can shadow them: what is compiled into
# the interpreter, and what its start imports (`python -I -X importtime -c pass`, 3.8 to 3.13).
PRELOADED = frozenset(sys.builtin_module_names) | {
    *("_collections_abc", "_sitebuiltins", "abc", "codecs", "encodings", "genericpath", "io"),
    *("__main__", "ntpath", "os", "posixpath", "site", "stat", "zipimport"),
}

# What `import torch` and `accelerate launch` import themselves (torch 2.13, accelerate 1.15): a
# file of such a name next to the script shadows the module whatever the script imports.
_TORCH_IMPORTS = """
argparse array ast asyncio base64 bisect bz2 calendar cmath collections concurrent contextlib
contextvars copy copyreg csv ctypes dataclasses datetime difflib dis email enum fnmatch functools
gettext glob gzip hashlib heapq http importlib inspect ipaddress json keyword linecache locale
logging lzma mmap multiprocessing numbers opcode operator pathlib pickle pickletools pkgutil
platform pprint queue quopri random re reprlib runpy select selectors shutil signal socket ssl
string struct subprocess tarfile tempfile textwrap threading timeit token tokenize traceback types
typing unicodedata unittest urllib uuid warnings weakref zipfile
"""
TORCH_IMPORTS = frozenset(_TORCH_IMPORTS.split()) - PRELOADED
