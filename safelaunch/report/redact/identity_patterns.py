"""Patterns of identifying values: addresses, hosts, users, homes, serial numbers."""

from __future__ import annotations

import re

from safelaunch.report.redact import generic_names
from safelaunch.report.redact.secret_patterns import WORD_START, Form

_I, _M = re.IGNORECASE, re.MULTILINE


def _form(kind: str, guards: str, pattern: str, flags: int = 0) -> Form:
    return Form(kind, tuple(guards.split(" ")), re.compile(pattern, flags))


EMAIL = _form(
    "email",
    "@",
    r"(?<![\w.+%@/-])(?P<v>[A-Za-z0-9][\w.+%-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})"
    r"(?![\w-])",
)
AUTHOR = _form(
    "name",
    "author committer signed-off-by from: user.name co-authored-by",
    rf"(?:{WORD_START}(?:author|committer|from|(?:signed-off|co-authored|reviewed)-by):[ \t]{{0,8}}"
    r"(?P<v>[^<>\r\n@\"]{2,80}?)[ \t]{0,4}<|\buser\.name[ =]\"?(?P<w>[^\"\r\n]{2,80}))",
    _I | _M,
)
URL = re.compile(
    r"(?<![A-Za-z0-9])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,15})://"
    r"(?:(?P<who>(?:[^\s/\"'<>\\]|<\w+-\d+>){1,500})@)?(?P<host>[A-Za-z0-9][\w.-]{0,252})?"
)
BUCKETS = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "az", "wasbs", "oss", "cos", "obs")
WANDB = _form("user", "wandb.ai/", r"(?<![\w.])(?:app\.|api\.)?wandb\.ai/(?P<v>[\w.-]{2,60})(?=/)")

_HEX = "[0-9A-Fa-f]"
_UUID = rf"{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}"
DEVICES = (
    _form("gpu", "gpu- mig-", rf"{WORD_START}(?P<v>(?:GPU|MIG)-{_UUID}(?:/\d+/\d+)?)", _I),
    _form("gpu", "mig-gpu-", rf"{WORD_START}(?P<v>MIG-GPU-{_UUID}/\d+/\d+)", _I),
    _form("uuid", "-", rf"(?<![0-9A-Za-z])(?P<v>{_UUID})(?![0-9A-Za-z])"),
    _form(
        "serial",
        "serial asset chassis",
        r"(?:serial(?:[ _-]?(?:number|no|num))?|(?:asset|chassis|board)[ _-]?(?:tag|serial|sn))"
        r"\\*[\"']?[ \t]{0,24}[:=,][ \t]{0,8}\\*[\"']?(?P<v>"
        r"(?=[\w-]{0,40}\d)[A-Za-z0-9][\w-]{4,60})",
        _I,
    ),
    _form("serial", "serial", r"<serial>(?P<v>[A-Za-z0-9-]{5,60})</serial>"),
    _form(
        "guid",
        "guid",
        rf"guid\\*[\"']?[ \t:=]{{1,24}}(?P<v>(?:0x)?(?:{_HEX}{{4}}:){{3}}{_HEX}{{4}}"
        rf"|0x{_HEX}{{16}})",
        _I,
    ),
    _form(
        "id",
        "machine machine-id boot_id",
        r"(?:machine|boot)[-_ ]?id\\*[\"']?[ \t]{0,8}[:=][ \t]{0,8}\\*[\"']?(?P<v>[0-9a-f]{32})",
        _I,
    ),
    _form(
        "mac",
        ":",
        rf"(?<![\w:-])(?P<v>(?:{_HEX}{{2}}:){{5}}(?:(?:{_HEX}{{2}}:){{14}})?{_HEX}{{2}})(?![\w:-])",
    ),
    _form("mac", "-", rf"(?<![\w:-])(?P<v>(?:{_HEX}{{2}}-){{5}}{_HEX}{{2}})(?![\w:-])"),
    _form(
        "mac",
        ".",
        rf"(?<![\w.:-])(?P<v>(?=[0-9.]{{0,13}}[a-fA-F]){_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}})"
        rf"(?![\w.:-])",
    ),
)

FORMS = (AUTHOR, EMAIL, WANDB, *DEVICES)

# -- addresses -------------------------------------------------------------------------------------

IPV4 = re.compile(r"(?<![\d.])(?P<v>\d{1,3}(?:\.\d{1,3}){3})(?![\d]|\.\d)")
IPV6 = re.compile(rf"(?<![\w:.])(?P<v>(?:{_HEX}{{0,4}}:){{2,7}}{_HEX}{{0,4}})(?![\w:])")
# text before a version of four numbers, as nvidia-curand-cu12 10.3.5.147 is one
_BEFORE_VERSION = re.compile(
    r"(?:[=<>~!]=[ \t]{0,2}|\.so\.|(?:\b|_)(?:v|ver|version|cuda|cudnn|nccl|driver|release|firmware"
    r"|vbios|build|compiler|toolkit|torch|nvcc|hpc-?x|ucx|mlx\d|ofed|rocm|hip|cann|kernel|nvidia"
    r"|(?:lib)?cu(?:blas|rand|fft|solver|sparse|pti|dart|sparselt|file|dss)(?:lt)?|nvrtc|nvtx"
    r"|nvjitlink"
    r"|[\w-]{0,40}[-_]cu\d{1,2}|runtime)(?:[ _-]version)?[\"'`]?[ \t]{0,4}[-_=:|,]{0,2}[ \t]{0,30}"
    r"[\"'`v(]{0,2}|(?<!\bip)(?<!node)(?<!host)(?<!addr)(?<!gpu)(?<!server)(?<!worker)(?<=[a-z0-9])"
    r"[-_])$",
    _I,
)
_AFTER_VERSION = re.compile(
    r"[-+](?:py|cp|cu|git|rc|post|dev|\d+\.(?:el|fc))|rc\d|\.(?:post|dev|whl|tar)"
)
_COMMON_ADDRESSES = ("0.0.0.0", "169.254.169.254")  # noqa: S104 - any, and the metadata of clouds
_MAX_FIRST_NUMBER = 13  # the first number of a version of four; those of networks are mostly higher
_MAX_OTHER_NUMBER = 20
_BEFORE_ADDRESS = re.compile(
    r"(?:\[|@|//|\b(?:addr(?:ess)?|ip|host|from|to|via|peer|server|node|gateway|inet|dns|endpoint"
    r"|remote|client|nameserver|route|dst|src|by)\w{0,12}[\"']?[ \t]{0,4}[:=<(\"' ]{0,4})$",
    _I,
)


def is_version(before: str, number: str, after: str) -> bool:
    """Whether four numbers with dots are a version, judged by the text around them."""
    if _BEFORE_VERSION.search(before) or _AFTER_VERSION.match(after):
        return True
    parts = [int(part) for part in number.split(".")]
    if max(parts) > 255:  # noqa: PLR2004 - no address at all
        return True
    if re.match(r":\d|/\d{1,2}\b|<\d|%", after) or _BEFORE_ADDRESS.search(before):
        return False
    has_low_first = parts[0] <= _MAX_FIRST_NUMBER and parts[0] != 10  # noqa: PLR2004 - 10.0.0.0/8
    return has_low_first and sum(part < _MAX_OTHER_NUMBER for part in parts[1:]) >= 2  # noqa: PLR2004


def is_common_address(number: str) -> bool:
    """Whether an IPv4 address is the same on every machine."""
    return number.startswith(("127.", "255.")) or number in _COMMON_ADDRESSES


def is_ipv6(text: str) -> bool:
    """Whether a text is an identifying IPv6 address: no `::1`, no slice, no `a::b`."""
    import ipaddress  # noqa: PLC0415 - only where a text looks like one

    groups = [group for group in text.split(":") if group]
    if len(text) < 6 or not any(c.isdigit() for c in text):  # noqa: PLR2004
        return False
    if len(groups) < 3 and all(g.isdigit() and len(g) < 4 for g in groups):  # noqa: PLR2004 - 10::20
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


# -- hosts and users -------------------------------------------------------------------------------

_HOST = r"[A-Za-z0-9](?:[\w-]{0,62})(?:\.[\w-]{1,63}){0,8}"
_EQUALS = r"\\*[\"']?[ \t]{0,8}[:=][ \t]{0,8}\\*[\"']?"
# behind `host: x` the line or the item ends; a sentence goes on
_END = r"(?=[ \t]{0,8}(?:$|\\|[\"',;)}\]|])|:\d)"
_ASSIGNMENT = r"(?:[ \t]{0,2}=[ \t]{0,2}\\*[\"']?|\\*[\"'][ \t]{0,4}:[ \t]{0,4}\\*[\"'])"
_HOST_KEY = (
    r"host[ _-]?name|host|master[_-]addr(?:ess)?|main[_-]process[_-]ip|node[_-]?name"
    r"|rdzv[_-]endpoint"
    r"|(?:slurm_(?:job_|step_)?)?node[_-]?list|slurm_(?:submit_host|topology_addr|srun_comm_host"
    r"|launch_node_ipaddr)|slurmd_nodename|head[_-]node|computer[_-]?name|ray_address|head[_-]ip"
    r"|node[_-]ip(?:[_-]address)?|http_host|fqdn"
)
HOST_KEY = re.compile(_HOST_KEY, _I)
HOST_FORMS = (
    _form(
        "host",
        "nccl",
        rf"(?<![\w.-])(?P<v>{_HOST}):\d{{1,9}}:\d{{1,9}} (?:\[\d+\] )?(?:\S{{1,40}} )?NCCL\b",
    ),
    _form(
        "host",
        "host node addr ip= ip: endpoint fqdn computer",
        rf"{WORD_START}(?:{_HOST_KEY}){_EQUALS}(?P<v>{_HOST})(?![\w(\[]){_END}",
        _I | _M,
    ),
    _form(
        "own-host",
        "hostname master_addr node",
        rf"(?<![A-Za-z0-9])(?:(?:SLURM_)?HOSTNAME|MASTER_ADDR|SLURMD_NODENAME|SLURM_SUBMIT_HOST)"
        rf"={{1}}[\"']?(?P<v>{_HOST})(?![\w(\[])",
    ),
    _form(
        "host",
        "--",
        rf"--(?:{_HOST_KEY}|server|node)(?:[ \t]{{1,4}}|\\*[\"'],[ \t]{{0,4}}\\*[\"'])"
        rf"(?P<v>{_HOST})",
        _I,
    ),
    _form("host", "]:", rf"\[(?P<v>{_HOST})\]:\d"),
    _form("host", ",", rf"\((?P<v>{_HOST}), \d{{2,5}}\)"),
    _form(
        "host",
        "connect resolve hostname",
        rf"(?:connect(?:ing|ion|ed)?|resolve) (?:to |closed by |reset by |refused by )?(?:host"
        rf"(?:name)? |server |the server at )?\\*[\"']?(?P<v>{_HOST})(?=(?::| port )\d| port"
        rf"|:? (?:nodename|Name or|Temporary|No address))",
        _I,
    ),
    _form("host", "resolve hostname", rf"resolve hostname (?P<v>{_HOST})", _I),
    _form(
        "host",
        "closed reset refused",
        rf"(?:closed|reset|refused|terminated) by (?P<v>{_HOST}) port \d",
    ),
    _form("host", "known hosts", rf"added '(?P<v>{_HOST})'"),
    _form(
        "host",
        "srun: slurmstepd:",
        rf"(?:srun: error: (?P<v>{_HOST}): task|\*\*\* (?:STEP|JOB) \S{{1,40}} ON (?P<w>{_HOST}) )",
    ),
    _form(
        "host",
        "tfevents.",
        r"tfevents\.\d{9,11}\.(?P<v>[\w-]{1,63}(?:\.[A-Za-z][\w-]{0,62}){0,6})(?=\.\d|[\s\"'/]|$)",
    ),
    _form(
        "host",
        "kernel: systemd sshd[ cron[ sudo:",
        rf"^[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d (?P<v>{_HOST}) [\w./-]{{2,40}}(?:\[\d+\])?:",
        _M,
    ),
    _form(
        "host",
        "ssh scp sftp rsync",
        r"(?:^|[\s\"'`$#])(?:ssh|sftp)(?:[ \t]{1,4}-[A-Za-z]"
        r"(?:[ \t]{1,4}[^\s-]\S{0,100})?){0,6}[ \t]{1,4}"
        r"(?P<v>[A-Za-z][\w-]{0,62}\d[\w.-]{0,60})(?=[\s\"'`]|$)",
        _M,
    ),
    _form("host", "pid=", rf"\(.{{0,60}}pid=\d+, ip=(?P<v>{_HOST})\)"),
    _form(
        "host",
        ".local .lan .corp .internal .intranet .intra .localdomain .edu .gov .mil .ac. .arpa",
        r"(?<![\w.@/-])(?P<v>(?:[A-Za-z0-9-]{1,63}\.){1,8}(?:lan|corp|intranet|intra|localdomain"
        r"|home\.arpa|edu|mil|gov|(?:ac|edu)\.[a-z]{2}))(?![\w(]|\.\w)",
    ),
    _form(
        "host",
        ".local .internal",
        r"(?<![\w.@/-])(?P<v>(?!threading|werkzeug|asgiref|_thread|self|thread)"
        r"(?:[A-Za-z0-9-]{1,63}\.){1,8}(?:local|(?<=\d\.)internal|(?<=ec2\.)internal"
        r"|(?<=compute\.)internal))(?![\w(=]|\.\w| =)",
    ),
    _form(
        "host",
        ".",
        r"(?<![\w.@/-])(?P<v>(?=[A-Za-z]{0,30}\d|[A-Za-z0-9]{1,30}-)[A-Za-z][A-Za-z0-9-]{0,62}"
        r"(?:\.[A-Za-z0-9-]{1,63}){1,7}\.(?:com|org|net|io|ai|cn|de|fr|uk|jp|ch|nl|at|it|es|eu"
        r"|se|kr"
        r"|in|ca|au|us|tw|hk|sg|ru|pl|cz|dev|cloud))(?![\w(-]|\.\w)",
    ),
)
_NAME = r"[A-Za-z0-9_][\w.-]{0,63}"
_USER_KEY = (
    r"(?:sudo_|slurm_job_|pg|db_?|ssh_?|login_|remote_)?user(?:[_-]?name)?|logname"
    r"|slurm_job_account|wandb_(?:entity|username)"
)
USER_KEY = re.compile(rf"{_USER_KEY}|login|owner|entity", _I)
USER_FORMS = (
    _form(
        "user",
        "/home /users",
        r"/(?:home|homes|users)\d{0,3}\\?/(?P<v>[^/\s:\"'<>|*?\\,;()\[\]{}$`&=]{1,64})",
        _I,
    ),
    _form(
        "user", ":\\", r"\b[A-Za-z]:\\{1,4}Users\\{1,4}(?P<v>[^\\/:*?\"<>|\r\n]{1,64})(?=\\)", _I
    ),
    _form(
        "user",
        "user logname entity account",
        rf"{WORD_START}(?:{_USER_KEY}){_ASSIGNMENT}(?P<v>{_NAME})(?![\w(\[])",
        _I,
    ),
    _form("user", "logged", rf"logged in as:? (?:user )?(?P<v>{_NAME})", _I),
    _form("user", "logged", rf"logged in as:? \S{{1,64}} \((?P<v>{_NAME})\)", _I),
    _form("user", "id=", rf"\b[ug]id=\d+\((?P<v>{_NAME})\)"),
    _form("user", "user", rf"\binvalid user (?P<v>{_NAME})|\bfor user (?P<w>{_NAME}) from\b"),
    _form("user", "sudo", rf"\bsudo -u (?P<v>{_NAME})(?= |$)", _M),
    _form("user", "docker", rf"\blogin -u (?P<v>{_NAME})(?= |$)", _M),
)
# alice@gpu-7:~$, ssh alice@gpu-7, [alice@gpu-7 ~]$, alice@10.0.0.5
AT = re.compile(
    rf"(?P<before>(?:\b(?:ssh|scp|sftp|rsync)\b[^\r\n@]{{0,200}}?[ \t]|\[|^|[\s\"'(])?)"
    rf"(?<![\w@/.-])(?P<user>[A-Za-z_][\w.-]{{0,31}}|<user-\d+>)@"
    rf"(?P<host>{_HOST})(?P<after>:(?!\d)|: "
    rf"| [~/]|\d?)"
)


def is_identifying(kind: str, value: str) -> bool:
    """Whether a name may be replaced everywhere: not a word with other meanings."""
    lowered = value.lower()
    generic, min_length = (generic_names.USERS, 3) if kind == "user" else (generic_names.HOSTS, 4)
    is_word = lowered in generic or lowered in generic_names.WORDS or value.isdigit()
    return len(value) >= min_length and not is_word


def is_public(host: str) -> bool:
    """Whether a host is a public service, or this machine as every machine calls itself."""
    lowered = host.lower().rstrip(".")
    return lowered in generic_names.HOSTS or any(
        lowered == domain or lowered.endswith("." + domain) for domain in generic_names.PUBLIC
    )
