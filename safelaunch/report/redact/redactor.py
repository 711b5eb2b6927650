"""Replaces names of people and machines, and secrets, by placeholders.

    redactor = Redactor()
    redactor.add_value("user", "alice")
    redactor.text(text)  # of all texts twice: names in the last one are then replaced in all

The same value has the same placeholder. Known values are replaced everywhere; values recognised by
their context are replaced there, and elsewhere if the word has no other meaning. No list of
patterns is complete: people should check a bundle.
"""
# ruff: noqa: PLR0911, PLR2004 - a return for each kind of value; the numbers count characters

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.report.redact import generic_names, identity_patterns, secret_patterns
from safelaunch.report.redact.encodings import KnownValue
from safelaunch.report.redact.line_filter import lower, strip_key_endings, sub_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.report.redact.secret_patterns import Form

KINDS = (
    "secret", "user", "name", "host", "ip", "mac", "email", "gpu", "uuid", "serial", "guid", "id",
    "bucket", "ssh-key", "fingerprint", "home",
)  # fmt: skip
PLACEHOLDER = re.compile(rf"<(?:{'|'.join(KINDS)})-\d+>")
_MAX_KEY_CHARS = 60  # characters of a name before `token=`
_CONTEXT_CHARS = 60  # characters that tell what four numbers are
_GENERIC_KEYS = ("value", "default", "was", "is")  # the key above them names the kind
_MIN_SECRET_CHARS = 4  # of a known secret; a shorter value is too common to be replaced
_MAX_REMAINDER_CHARS = 3  # beside a placeholder, too short to identify anything
_MIN_GLOBAL_SECRET_CHARS = 8  # a shorter secret of a text is replaced only in its context
_IPV4 = identity_patterns.IPV4
_NAME_END = re.compile(r"[\w.-]{0,60}$")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]{0,80}")


class _Group(NamedTuple):
    """Forms, and what finds any of their words in a short text; in a long one `in` is faster."""

    forms: tuple[Form, ...]
    any_word: re.Pattern[str]

    @classmethod
    def make(cls, *forms: Form) -> _Group:
        """Return the group of some forms."""
        words = {word for form in forms for word in form.words}
        return cls(forms, re.compile("|".join(map(re.escape, sorted(words)))))


_SHORT = 300  # characters
_IDENTITIES = _Group.make(*identity_patterns.FORMS)
_USERS_AND_HOSTS = _Group.make(*identity_patterns.USER_FORMS, *identity_patterns.HOST_FORMS)
_HEADERS = _Group.make(secret_patterns.HOOKS, *secret_patterns.HEADERS)
_TOKENS = _Group.make(*secret_patterns.SSH_KEYS, *secret_patterns.TOKEN_FORMS)
_OTHER_SECRETS = _Group.make(*secret_patterns.OTHERS)


class Redactor:
    """The values of one bundle and their placeholder numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, int]] = {}
        self._values: dict[str, KnownValue] = {}
        self._preceding_key = ""  # the key of the value at hand

    # -- known values

    def add_value(self, kind: str, value: str) -> None:
        """Replace a value everywhere, unless it is a common word; secrets always."""
        value = value.strip()
        is_harmless = False
        if kind in ("user", "host"):
            is_harmless = not identity_patterns.is_identifying(kind, value) or (
                kind == "host"
                and (identity_patterns.is_public(value) or bool(_IPV4.fullmatch(value)))
            )
        elif kind == "secret":
            is_harmless = len(value) < _MIN_SECRET_CHARS or secret_patterns.is_empty_value(value)
        elif kind == "home":  # /root is the same everywhere, and patterns find /home/alice
            is_harmless = len(re.findall(r"[/\\]", value)) < 2 or "/home/" in value
        if not is_harmless:
            self._register(kind, value)

    def _register(self, kind: str, value: str) -> None:
        if value not in self._values and not PLACEHOLDER.search(value):
            self._values[value] = KnownValue(kind, value, self.placeholder(kind, value))
            short = value.partition(".")[0]
            if kind == "host" and short != value and any(c.isdigit() or c == "-" for c in short):
                self.add_value("host", short)

    def placeholder(self, kind: str, value: str) -> str:
        """Return the placeholder of a value."""
        numbers = self._numbers.setdefault(kind, {})
        if kind == "host":
            value = value.lower().rstrip(".")
            short = value.partition(".")[0]
            value = short if short in numbers else value
        number = numbers.setdefault(value, len(numbers) + 1)
        return f"<{kind}-{number}>"

    # -- text

    def text(self, text: str) -> str:
        """Return a text with placeholders."""
        for value in sorted(self._values.values(), key=lambda entry: -len(entry.value)):
            text = value.replace(text)
        text = sub_lines(identity_patterns.URL, ("://",), self._url, self._keys(text))
        text = self._secrets(text)
        text = self._forms(_IDENTITIES, text)
        text = sub_lines(identity_patterns.AT, ("@",), self._user_at_host, text)
        text = self._forms(_USERS_AND_HOSTS, text)
        text = sub_lines(_IPV4, (".",), self._ipv4, text)
        return sub_lines(identity_patterns.IPV6, (":",), self._ipv6, text)

    def secrets(self, text: str) -> str:
        """Return a text with placeholders only for secrets, for its owner."""
        text = sub_lines(identity_patterns.URL, ("://",), self._url_login, self._keys(text))
        return self._secrets(text)

    def _keys(self, text: str) -> str:
        if "PRIVATE KEY" in text:  # the one form that has several lines
            text = secret_patterns.PEM.sub(partial(self._replace_value, "secret"), text)
            text = strip_key_endings(text, partial(self.placeholder, "secret"))
        return self._forms(_HEADERS, text)

    def _secrets(self, text: str) -> str:
        text = sub_lines(secret_patterns.QUERY, ("?", "&"), self._query, text)
        text = self._forms(_TOKENS, text)
        text = sub_lines(secret_patterns.KEYED, secret_patterns.KEY_WORDS, self._key_value, text)
        text = sub_lines(secret_patterns.OPTION, ("-",), self._key_value, text)
        return self._forms(_OTHER_SECRETS, text)

    def _forms(self, group: _Group, text: str) -> str:
        lowered = lower(text)
        if len(text) < _SHORT and group.any_word.search(lowered) is None:
            return text
        for form in group.forms:
            if any(map(lowered.__contains__, form.words)):  # nearly never, and there are many
                replace_match = partial(self._replace_value, form.kind)
                text = sub_lines(form.pattern, form.words, replace_match, text)
                lowered = lower(text)
        return text

    def _replace_value(self, kind: str, match: re.Match[str]) -> str:
        """Return a match with its value (the group `v`, or `w` or `x`) replaced."""
        group = next((n for n in ("v", "w", "x") if match.groupdict().get(n)), None)
        if group is None:
            return match[0]
        value = match[group]
        replacement = self._redact_value(kind, value)
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return match[0][:start] + replacement + match[0][end:]

    def _redact_value(self, kind: str, value: str) -> str:
        """Return the placeholder of a matched value, or the value if it is harmless."""
        if _is_redacted(value):
            return value
        if kind in ("host", "own-host"):
            return self._host(value, is_sure=kind == "own-host")
        if kind == "user":
            return self._user(value)
        if kind == "mac" and len(set(value.lower().replace("-", ":").split(":"))) == 1:
            return value  # 00:00:..., ff:ff:...
        if kind == "email" and value.lower().startswith("git@"):
            return value
        if kind == "secret":
            if not secret_patterns.is_value("", value):
                return value
            self._register_secret(value)
        elif kind in ("email", "name"):
            self._register(kind, value)
        return self.placeholder(kind, value)

    def _register_secret(self, value: str) -> None:
        kinds = (str.isdigit, str.isupper, str.islower, lambda c: not c.isalnum())
        mixed = sum(any(kind(c) for c in value) for kind in kinds)
        is_path = value.startswith(("/", "~"))
        if len(value) >= _MIN_GLOBAL_SECRET_CHARS and mixed > 1 and not is_path:
            self._register("secret", value)

    def _host(self, value: str, *, is_sure: bool = False) -> str:
        if identity_patterns.is_public(value) or _IPV4.fullmatch(value) or value.isdigit():
            return value
        lowered = value.lower()
        is_file = lowered.endswith(
            (".py", ".json", ".yaml", ".log", ".txt", ".so", ".cpp", ".cc", ".sh")
        )
        if is_file or re.match(r"(self|args?|cfg|config|os|torch|opt)\.", lowered):
            return value
        has_mark = is_sure or any(c.isdigit() or c in "-." for c in value)
        if has_mark and identity_patterns.is_identifying("host", value) and "_" not in value:
            self._register("host", value)
        elif lowered in generic_names.WORDS or len(value) < 2:
            return value
        return self.placeholder("host", value)

    def _user(self, value: str) -> str:
        lowered = value.lower()
        if (
            lowered in generic_names.USERS
            or lowered in ("none", "null", "true", "false", "self")
            or value.isdigit()
            or PLACEHOLDER.search(value)
            or value.startswith(("$", "<", "{", "*", "%"))
        ):
            return value
        if identity_patterns.is_identifying("user", value):
            self._register("user", value)
        return self.placeholder("user", value)

    # -- forms that need a second look

    def _url(self, match: re.Match[str]) -> str:
        scheme, login, host = match["scheme"], match["who"], match["host"] or ""
        redacted = f"{scheme}://"
        if login:
            redacted += f"{self._login(login, scheme)}@"
        if scheme.lower() in identity_patterns.BUCKETS and host:
            return redacted + self.placeholder("bucket", host)
        is_number = bool(_IPV4.fullmatch(host))
        return redacted + (host if not host or is_number else self._host(host))

    def _url_login(self, match: re.Match[str]) -> str:
        login, scheme = match["who"], match["scheme"]
        if not login or ":" not in login:
            return match[0]
        user, _, password = login.partition(":")
        return f"{scheme}://{user}:{self.placeholder('secret', password)}@{match['host'] or ''}"

    def _login(self, login: str, scheme: str) -> str:
        user, colon, password = login.partition(":")
        if PLACEHOLDER.fullmatch(user) and (not colon or PLACEHOLDER.fullmatch(password)):
            return login
        if not colon and scheme.lower() in ("ssh", "git", "git+ssh", "sftp", "scp", "rsync"):
            return login if user == "git" else self._user(user)
        if not colon:
            return self._redact_value("secret", login)
        self._register_secret(password)
        return f"{self._redact_value('secret', user)}:{self.placeholder('secret', password)}"

    def _query(self, match: re.Match[str]) -> str:
        if not secret_patterns.is_secret_query(match["name"]) or PLACEHOLDER.match(match["v"]):
            return match[0]
        prefix = match[0][: match.start("v") - match.start()]
        return prefix + self._redact_value("secret", match["v"])

    def _key_value(self, match: re.Match[str]) -> str:
        group = next(name for name in ("d", "s", "f", "b") if match[name])
        full_value = value = match[group]
        start = match.start(group) - match.start()
        key = re.split(r"[^\w.-]", match[0], maxsplit=1)[0]
        prefix = _NAME_END.search(
            match.string, max(0, match.start() - _MAX_KEY_CHARS), match.start()
        )
        name = ((prefix[0] if prefix else "") + key).lstrip("-.")
        tail = ""
        if group == "b":
            stripped = value.rstrip(",;)]}.:\\") if len(value) > 1 else value
            value, tail = stripped, value[len(stripped) :]
        if (
            not value
            or not secret_patterns.is_secret(name)
            or _is_redacted(value)
            or value.lower() in ("bearer", "basic")
            or not secret_patterns.is_value(name, value)
            or not secret_patterns.is_value(name, full_value)  # a call
        ):
            return match[0]
        rest = match[0][start + len(value + tail) :]
        return match[0][:start] + self._redact_value("secret", value) + tail + rest

    def _user_at_host(self, match: re.Match[str]) -> str:
        user, host = match["user"], match["host"]
        is_address = bool(_IPV4.fullmatch(host))
        is_registered = host in self._values or user in self._values
        context = match["before"].strip() or match["after"].strip()
        if not (is_address or is_registered or context) or (host[0].isdigit() and not is_address):
            return match[0]
        if user.lower() == "git" and identity_patterns.is_public(host):
            return match[0]
        redacted_host = host if is_address else self._host(host, is_sure=True)
        redacted_user = user if PLACEHOLDER.fullmatch(user) else self._user(user)
        return f"{match['before']}{redacted_user}@{redacted_host}{match['after']}"

    def _ipv4(self, match: re.Match[str]) -> str:
        number, text = match["v"], match.string
        preceding = text[max(0, match.start() - _CONTEXT_CHARS) : match.start()]
        if match.start() < _CONTEXT_CHARS:
            preceding = self._preceding_key + preceding
        following = text[match.end() : match.end() + 8]
        is_harmless = identity_patterns.is_common_address(number) or identity_patterns.is_version(
            preceding, number, following
        )
        return number if is_harmless else self.placeholder("ip", number)

    def _ipv6(self, match: re.Match[str]) -> str:
        is_address = identity_patterns.is_ipv6(match["v"])
        return self.placeholder("ip", match["v"]) if is_address else match[0]

    # -- data

    def data(self, data: Any, key: str = "") -> Any:
        """Return JSON data with placeholders; a key shows the kind of its value."""
        if isinstance(data, str):
            return self.pair(key, data)
        if isinstance(data, list):
            return self._list(data, key)
        if isinstance(data, dict):
            return {
                self.text(str(k)): self.data(v, key if k in _GENERIC_KEYS and key else str(k))
                for k, v in data.items()
            }
        is_number = isinstance(data, (int, float)) and not isinstance(data, bool)
        if is_number and secret_patterns.is_secret(key) and not key.lower().endswith("token"):
            return self.placeholder("secret", str(data))
        return data

    def _list(self, data: list[Any], key: str) -> list[Any]:
        """Return a list; a word behind `--token` is that option's value."""
        values, last = [], ""
        for item in data:
            is_option = isinstance(item, str) and _OPTION.fullmatch(item)
            values.append(self.data(item, last or key))
            last = item.lstrip("-") if is_option else ""
        return values

    def pair(self, key: str, value: str) -> str:
        """Return the value of a key."""
        if not value or PLACEHOLDER.fullmatch(value):
            return value
        if secret_patterns.is_secret(key) and secret_patterns.is_value(key, value):
            return self._redact_value("secret", value)
        if identity_patterns.HOST_KEY.fullmatch(key) or key in ("hosts", "_host"):
            if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,252}", value):
                is_address = _IPV4.fullmatch(value)
                return self.text(value) if is_address else self._host(value)
        elif identity_patterns.USER_KEY.fullmatch(key) and re.fullmatch(r"[\w.-]{1,64}", value):
            return self._user(value)
        elif key.lower() in ("serial", "serial_number") and any(c.isdigit() for c in value):
            return self.placeholder("serial", value)
        self._preceding_key = f"{key}: "
        try:
            return self.text(value)
        finally:
            self._preceding_key = ""


def count_placeholders(texts: Iterable[str]) -> dict[str, int]:
    """Return how many values of each kind have a placeholder in texts."""
    placeholders = {placeholder for text in texts for placeholder in PLACEHOLDER.findall(text)}
    kinds = [placeholder[1:].rpartition("-")[0] for placeholder in placeholders]
    return {kind: kinds.count(kind) for kind in KINDS if kind in kinds}


def _is_redacted(value: str) -> bool:
    """Whether a value is only placeholders: the name of a user may also begin a password."""
    remainder, count = PLACEHOLDER.subn("", value)
    return count > 0 and len(remainder) < _MAX_REMAINDER_CHARS
