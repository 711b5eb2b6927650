"""The JSON Schema of each kind of file, for editors, from the declaration in schema.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.config import profiles
from safelaunch.config.schema import json_types
from safelaunch.config.schema.files import HOST, HOST_NAME, JOB, PROFILE

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape

NAMES = ("job", "profile", "hosts")
# the YAML extension of VS Code reads "JSON Schema 7 and below" (README of yaml-language-server)
_DRAFT = "http://json-schema.org/draft-07/schema#"


def make(name: str) -> Shape:
    """Return the schema of a job, profile or hosts file. Raises KeyError for another name."""
    shape = {"job": _job, "profile": PROFILE.schema, "hosts": _hosts}[name]()
    return {"$schema": _DRAFT, "title": f"safelaunch {name} file", **shape}


def _job() -> Shape:
    shape = JOB.schema()
    keys = shape["properties"]
    # any text to the declaration: the launcher's and the profile's own readers know which there are
    known = json_types.nullable(json_types.words(*launchers.NAMES))
    keys["launcher"] = {**known, "description": keys["launcher"]["description"]}
    keys["profile"] = _with_profiles(keys["profile"])
    return shape


def _with_profiles(shape: Shape) -> Shape:
    """Return the shape of a profile's name with those that there are, which an editor offers."""
    described = {"description": shape["description"]}
    other = {key: value for key, value in shape.items() if key not in described}
    return {**json_types.either(json_types.words(*profiles.names()), other), **described}


def _hosts() -> Shape:
    host = HOST.schema()
    host["properties"]["profile"] = _with_profiles(host["properties"]["profile"])
    name = HOST_NAME.schema()
    names = {"pattern": name["pattern"]}
    members = json_types.listed(json_types.text(), minItems=1)
    hosts = json_types.mapped(json_types.nullable(host), names)
    groups = json_types.nullable(json_types.mapped(members, names))
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["hosts"],
        "properties": {
            "hosts": {**hosts, "description": "your machines by name"},
            "groups": {**groups, "description": "names for several of them"},
        },
    }
