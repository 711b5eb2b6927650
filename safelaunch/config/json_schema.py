"""The JSON Schema of each kind of file, for editors, from the declaration in schema/files.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.config import profiles
from safelaunch.config.schema import json_types
from safelaunch.config.schema.files import HOST, JOB, PROFILE
from safelaunch.config.schema.host_types import HOST_NAME

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
    # both are any text to the declaration; their readers know the names
    described = {"description": keys["launcher"]["description"]}
    keys["launcher"] = {**json_types.nullable(json_types.words(*launchers.NAMES)), **described}
    keys["profile"] = _with_profiles(keys["profile"])
    return shape


def _with_profiles(shape: Shape) -> Shape:
    """Return the shape of a profile's name with the built-in ones, which an editor offers."""
    description = {"description": shape.pop("description")}
    return {**json_types.either(json_types.words(*profiles.names()), shape), **description}


def _hosts() -> Shape:
    host = HOST.schema()
    host["properties"]["profile"] = _with_profiles(host["properties"]["profile"])
    names = {"pattern": HOST_NAME.schema()["pattern"]}
    hosts = json_types.mapped(json_types.nullable(host), names)
    groups = json_types.nullable(
        json_types.mapped(json_types.listed(json_types.text(), minItems=1), names)
    )
    keys = {
        "hosts": {**hosts, "description": "your machines by name"},
        "groups": {**groups, "description": "names for several of them"},
    }
    return {**json_types.record(keys), "required": ["hosts"]}
