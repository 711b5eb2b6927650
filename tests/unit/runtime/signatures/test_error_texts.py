"""The error texts that the project set out to know: each is recognised, as what it is."""

from __future__ import annotations

import pytest
import yaml
from support import DATA

from safelaunch.runtime.signatures import classes
from safelaunch.runtime.signatures import match as signatures_match

FILE = DATA / "failures" / "known-texts.yaml"
TEXTS: dict[str, str] = yaml.safe_load(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("signature_id", "text"), TEXTS.items(), ids=TEXTS)
def test_a_known_text_is_recognised(signature_id: str, text: str) -> None:
    signatures = [match.signature for _, match in classes.findings(signatures_match.clean(text))]
    assert signature_id in [signature.id for signature in signatures if signature]
