"""Asks a metadata service again and again whether the machine is taken away, and records it.

    python -I -S -B metadata_watch.py NODE_DIR KIND URL SECONDS

It ends with the first notice, and with the supervisor that has started it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from urllib import error, parse, request

# the package is three folders up, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.records import PreemptionNotice

LIMIT = 5.0  # seconds for an answer
MAX_BYTES = 1 << 16
ABSENT = (404, 410)  # there is no notice
PREEMPTIONS = ("Preempt", "Terminate")  # events of Azure
TOKEN_TTL = "21600"  # noqa: S105 - seconds that a token of AWS lasts
_direct = request.build_opener(request.ProxyHandler({}))


def _call(url: str, headers: dict[str, str], method: str = "GET") -> str:
    """Return an answer. Raises OSError, of which HTTPError has a code."""
    query = request.Request(url, headers=headers, method=method)  # noqa: S310 - http, as the job says
    with _direct.open(query, timeout=LIMIT) as answer:
        return str(answer.read(MAX_BYTES).decode("utf-8", "replace"))


def _aws(url: str) -> str:
    """Return the notice of AWS, whose service wants a token first."""
    place = parse.urlsplit(url)
    root = f"{place.scheme}://{place.netloc}/latest/api/token"
    token = _call(root, {"X-aws-ec2-metadata-token-ttl-seconds": TOKEN_TTL}, "PUT")
    return _call(url, {"X-aws-ec2-metadata-token": token})


def _gcp(url: str) -> str:
    """Return the notice of Google: TRUE."""
    text = _call(url, {"Metadata-Flavor": "Google"})
    return text if text.strip().upper() == "TRUE" else ""


def _azure(url: str) -> str:
    """Return the first event of Azure that ends the machine."""
    events = json.loads(_call(url, {"Metadata": "true"})).get("Events", [])
    ends = [event for event in events if event.get("EventType") in PREEMPTIONS]
    return json.dumps(ends[0]) if ends else ""


def _plain(url: str) -> str:
    """Return any answer."""
    return _call(url, {}) or "an empty answer"


ASK = {"aws": _aws, "gcp": _gcp, "azure": _azure, "url": _plain}


def ask(kind: str, url: str) -> tuple[str, str]:
    """Return what the notice says, "" without one, and why that could not be asked."""
    try:
        return ASK[kind](url), ""
    except error.HTTPError as e:
        return "", "" if e.code in ABSENT else f"{url} answers {e.code} {e.reason}"
    except (OSError, ValueError, AttributeError) as e:
        return "", f"{url} does not answer: {getattr(e, 'reason', e)}"


def main(node_dir: str, kind: str, url: str, seconds: str) -> None:
    """Ask until there is a notice."""
    parent, problem = os.getppid(), ""
    while os.getppid() == parent:
        what, why = ask(kind, url)
        if what or (why and not problem):
            problem = why
            record = PreemptionNotice(time=time.time(), what=printable(what)[:200])
            record.problem = printable(why)[:200]
            record.write(node_dir)
        if what:
            return
        time.sleep(float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
