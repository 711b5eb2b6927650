"""Patterns of identifying values: addresses, hosts, users, homes, serial numbers."""
# ruff: noqa: PLR2004, S104 - the numbers are parts of addresses, which nothing listens on

from __future__ import annotations

import ipaddress
import re

from safelaunch.report.redact import generic_names
from safelaunch.report.redact.secret_patterns import WORD_START, forms

_PEOPLE = forms(
    {
        "name": {
            "author committer signed-off-by from: user.name co-authored-by": rf"(?im)"
            rf"(?:{WORD_START}"
            r"(?:author|committer|from|(?:signed-off|co-authored|reviewed)-by):[ \t]{0,8}(?P<v>"
            r"[^<>\r\n@\"]{2,80}?)[ \t]{0,4}<|\buser\.name[ =]\"?(?P<w>[^\"\r\n]{2,80}))",
        },
        "email": {
            "@": r"(?<![\w.+%@/-])(?P<v>[A-Za-z0-9][\w.+%-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}"
            r"[A-Za-z]{2,24})(?![\w-])",
        },
        "user": {"wandb.ai/": r"(?<![\w.])(?:app\.|api\.)?wandb\.ai/(?P<v>[\w.-]{2,60})(?=/)"},
    }
)
URL = re.compile(
    r"(?<![A-Za-z0-9])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,15})://(?:(?P<who>(?:[^\s/\"'<>\\]"
    r"|<\w+-\d+>){1,500})@)?(?P<host>[A-Za-z0-9][\w.-]{0,252})?"
)
BUCKETS = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "az", "wasbs", "oss", "cos", "obs")

_HEX = "[0-9A-Fa-f]"
_UUID = rf"{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}"
DEVICES = forms(
    {
        "gpu": {
            "gpu- mig-": rf"(?i){WORD_START}(?P<v>(?:GPU|MIG)-{_UUID}(?:/\d+/\d+)?)",
            "mig-gpu-": rf"(?i){WORD_START}(?P<v>MIG-GPU-{_UUID}/\d+/\d+)",
        },
        "uuid": {"-": rf"(?<![0-9A-Za-z])(?P<v>{_UUID})(?![0-9A-Za-z])"},
        "serial": {
            "serial asset chassis": r"(?i)(?:serial(?:[ _-]?(?:number|no|num))?|(?:asset|chassis"
            r"|board)[ _-]?(?:tag|serial|sn))\\*[\"']?[ \t]{0,24}[:=,][ \t]{0,8}\\*[\"']?(?P<v>(?="
            r"[\w-]{0,40}\d)[A-Za-z0-9][\w-]{4,60})",
            "serial": r"<serial>(?P<v>[A-Za-z0-9-]{5,60})</serial>",
        },
        "guid": {
            "guid": rf"(?i)guid\\*[\"']?[ \t:=]{{1,24}}(?P<v>(?:0x)?"
            rf"(?:{_HEX}{{4}}:){{3}}{_HEX}{{4}}|0x{_HEX}{{16}})",
        },
        "id": {
            "machine machine-id boot_id": r"(?i)(?:machine|boot)[-_ ]?id\\*[\"']?[ \t]{0,8}[:=]"
            r"[ \t]{0,8}\\*[\"']?(?P<v>[0-9a-f]{32})",
        },
        "mac": {
            ":": rf"(?<![\w:-])(?P<v>(?:{_HEX}{{2}}:){{5}}(?:(?:{_HEX}{{2}}:){{14}})?{_HEX}{{2}})"
            rf"(?![\w:-])",
            "-": rf"(?<![\w:-])(?P<v>(?:{_HEX}{{2}}-){{5}}{_HEX}{{2}})(?![\w:-])",
            ".": rf"(?<![\w.:-])(?P<v>(?=[0-9.]{{0,13}}"
            rf"[a-fA-F]){_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}})(?![\w.:-])",
        },
    }
)

FORMS = (*_PEOPLE, *DEVICES)

# -- addresses -------------------------------------------------------------------------------------

IPV4 = re.compile(r"(?<![\d.])(?P<v>\d{1,3}(?:\.\d{1,3}){3})(?![\d]|\.\d)")
IPV6 = re.compile(rf"(?<![\w:.])(?P<v>(?:{_HEX}{{0,4}}:){{2,7}}{_HEX}{{0,4}})(?![\w:])")
# text before a version of four numbers, as nvidia-curand-cu12 10.3.5.147 is one
_BEFORE_VERSION = re.compile(
    r"(?i)(?:[=<>~!]=[ \t]{0,2}|\.so\.|(?:\b|_)(?:v|ver|version|cuda|cudnn|nccl|driver|release"
    r"|firmware|vbios|build|compiler|toolkit|torch|nvcc|hpc-?x|ucx|mlx\d|ofed|rocm|hip|cann|kernel"
    r"|nvidia|(?:lib)?cu(?:blas|rand|fft|solver|sparse|pti|dart|sparselt|file|dss)(?:lt)?|nvrtc"
    r"|nvtx|nvjitlink|[\w-]{0,40}[-_]cu\d{1,2}|runtime)(?:[ _-]version)?[\"'`]?[ \t]{0,4}"
    r"[-_=:|,]{0,2}[ \t]{0,30}[\"'`v(]{0,2}|(?<!\bip)(?<!node)(?<!host)(?<!addr)(?<!gpu)(?<!server)"
    r"(?<!worker)(?<=[a-z0-9])[-_])$",
)
_AFTER_VERSION = re.compile(
    r"[-+](?:py|cp|cu|git|rc|post|dev|\d+\.(?:el|fc))|rc\d|\.(?:post|dev|whl|tar)"
)
_COMMON_ADDRESSES = ("0.0.0.0", "169.254.169.254")  # any, and the metadata of clouds
_MAX_FIRST_NUMBER = 13  # the first number of a version of four; those of networks are mostly higher
_MAX_OTHER_NUMBER = 20
_BEFORE_ADDRESS = re.compile(
    r"(?i)(?:\[|@|//|\b(?:addr(?:ess)?|ip|host|from|to|via|peer|server|node|gateway|inet|dns"
    r"|endpoint|remote|client|nameserver|route|dst|src|by)\w{0,12}[\"']?[ \t]{0,4}"
    r"[:=<(\"' ]{0,4})$",
)


def is_version(before: str, number: str, after: str) -> bool:
    """Whether four numbers with dots are a version, judged by the text around them."""
    if _BEFORE_VERSION.search(before) or _AFTER_VERSION.match(after):
        return True
    parts = [int(part) for part in number.split(".")]
    if max(parts) > 255:  # not an address
        return True
    if re.match(r":\d|/\d{1,2}\b|<\d|%", after) or _BEFORE_ADDRESS.search(before):
        return False
    has_low_first = parts[0] <= _MAX_FIRST_NUMBER and parts[0] != 10  # 10.0.0.0/8 is private
    return has_low_first and sum(part < _MAX_OTHER_NUMBER for part in parts[1:]) >= 2


def is_common_address(number: str) -> bool:
    """Whether an IPv4 address is the same on every machine."""
    return number.startswith(("127.", "255.")) or number in _COMMON_ADDRESSES


def is_ipv6(text: str) -> bool:
    """Whether a text is an identifying IPv6 address: no `::1`, no slice, no `a::b`."""
    groups = [group for group in text.split(":") if group]
    is_slice = len(groups) < 3 and all(g.isdigit() and len(g) < 4 for g in groups)  # 10::20
    if len(text) < 6 or not any(c.isdigit() for c in text) or is_slice:
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
    r"host[ _-]?name|host|master[_-]addr(?:ess)?|main[_-]process[_-]ip|node[_-]?name|rdzv"
    r"[_-]endpoint|(?:slurm_(?:job_|step_)?)?node[_-]?list|slurm_(?:submit_host|topology_addr"
    r"|srun_comm_host|launch_node_ipaddr)|slurmd_nodename|head[_-]node|computer[_-]?name"
    r"|ray_address|head[_-]ip|node[_-]ip(?:[_-]address)?|http_host|fqdn"
)
HOST_KEY = re.compile(_HOST_KEY, re.IGNORECASE)
_PRIVATE_DOMAINS = (
    ".local .lan .corp .internal .intranet .intra .localdomain .edu .gov .mil .ac. .arpa"
)
HOST_FORMS = [
    *forms(
        {
            "host": {
                "nccl": rf"(?<![\w.-])(?P<v>{_HOST}):\d{{1,9}}:\d{{1,9}} (?:\[\d+\] )?"
                rf"(?:\S{{1,40}} )?NCCL\b",
                "host node addr ip= ip: endpoint fqdn computer": rf"(?im){WORD_START}"
                rf"(?:{_HOST_KEY}){_EQUALS}(?P<v>{_HOST})(?![\w(\[]){_END}",
            },
            "own-host": {
                "hostname master_addr node": rf"(?<![A-Za-z0-9])(?:(?:SLURM_)?HOSTNAME|MASTER_ADDR"
                rf"|SLURMD_NODENAME|SLURM_SUBMIT_HOST)={{1}}[\"']?(?P<v>{_HOST})(?![\w(\[])",
            },
        }
    ),
    *forms(
        {
            "host": {
                "--": rf"(?i)--(?:{_HOST_KEY}|server|node)(?:[ \t]{{1,4}}|\\*[\"'],[ \t]{{0,4}}\\*"
                rf"[\"'])(?P<v>{_HOST})",
                "]:": rf"\[(?P<v>{_HOST})\]:\d",
                ",": rf"\((?P<v>{_HOST}), \d{{2,5}}\)",
                "connect resolve hostname": rf"(?i)(?:connect(?:ing|ion|ed)?|resolve) (?:to "
                rf"|closed by |reset by |refused by )?(?:host(?:name)? |server |the server at )?\\*"
                rf"[\"']?(?P<v>{_HOST})(?=(?::| port )\d| port|:? (?:nodename|Name or|Temporary"
                rf"|No address))",
                "resolve hostname": rf"(?i)resolve hostname (?P<v>{_HOST})",
                "closed reset refused": rf"(?:closed|reset|refused|terminated) by "
                rf"(?P<v>{_HOST}) port \d",
                "known hosts": rf"added '(?P<v>{_HOST})'",
                "srun: slurmstepd:": rf"(?:srun: error: (?P<v>{_HOST}): task|\*\*\* (?:STEP"
                rf"|JOB) \S{{1,40}} ON (?P<w>{_HOST}) )",
                "tfevents.": r"tfevents\.\d{9,11}\.(?P<v>[\w-]{1,63}(?:\.[A-Za-z][\w-]{0,62}){0,6})"
                r"(?=\.\d|[\s\"'/]|$)",
                "kernel: systemd sshd[ cron[ sudo:": rf"(?m)^[A-Z][a-z]{{2}} "
                rf"[ \d]\d \d\d:\d\d:\d\d (?P<v>{_HOST}) [\w./-]{{2,40}}(?:\[\d+\])?:",
                "ssh scp sftp rsync": r"(?m)(?:^|[\s\"'`$#])(?:ssh|sftp)(?:[ \t]{1,4}-[A-Za-z](?:"
                r"[ \t]{1,4}[^\s-]\S{0,100})?){0,6}[ \t]{1,4}(?P<v>[A-Za-z][\w-]{0,62}\d"
                r"[\w.-]{0,60})(?=[\s\"'`]|$)",
                "pid=": rf"\(.{{0,60}}pid=\d+, ip=(?P<v>{_HOST})\)",
                _PRIVATE_DOMAINS: r"(?<![\w.@/-])(?P<v>(?:[A-Za-z0-9-]{1,63}\.){1,8}"
                r"(?:lan|corp|intranet|intra|localdomain|home\.arpa|edu|mil|gov|(?:ac|edu)\.[a-z]{2}))(?![\w(]|\.\w)",
                ".local .internal": r"(?<![\w.@/-])(?P<v>(?!threading|werkzeug|asgiref|_thread|self"
                r"|thread)(?:[A-Za-z0-9-]{1,63}\.){1,8}(?:local|(?<=\d\.)internal|"
                r"(?<=ec2\.)internal|(?<=compute\.)internal))(?![\w(=]|\.\w| =)",
                ".": r"(?<![\w.@/-])(?P<v>(?=[A-Za-z]{0,30}\d|[A-Za-z0-9]{1,30}-)[A-Za-z]"
                r"[A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63}){1,7}\.(?:com|org|net|io|ai|cn|de|fr|uk"
                r"|jp|ch|nl|at|it|es|eu|se|kr|in|ca|au|us|tw|hk|sg|ru|pl|cz|dev|cloud))(?![\w(-]"
                r"|\.\w)",
            },
        }
    ),
]
_NAME = r"[A-Za-z0-9_][\w.-]{0,63}"
_USER_KEY = (
    r"(?:sudo_|slurm_job_|pg|db_?|ssh_?|login_|remote_)?user(?:[_-]?name)?|logname"
    r"|slurm_job_account|wandb_(?:entity|username)"
)
USER_KEY = re.compile(rf"(?i){_USER_KEY}|login|owner|entity")
USER_FORMS = [
    *forms(
        {
            "user": {
                "/home /users": r"(?i)/(?:home|homes|users)\d{0,3}\\?/(?P<v>"
                r"[^/\s:\"'<>|*?\\,;()\[\]{}$`&=]{1,64})",
                ":\\": r"(?i)\b[A-Za-z]:\\{1,4}Users\\{1,4}(?P<v>[^\\/:*?\"<>|\r\n]{1,64})(?=\\)",
                "user logname entity account": rf"(?i){WORD_START}(?:{_USER_KEY}){_ASSIGNMENT}"
                rf"(?P<v>{_NAME})(?![\w(\[])",
                "logged": rf"(?i)logged in as:? (?:user )?(?P<v>{_NAME})",
            },
        }
    ),
    *forms(
        {
            "user": {
                "logged": rf"(?i)logged in as:? \S{{1,64}} \((?P<v>{_NAME})\)",
                "id=": rf"\b[ug]id=\d+\((?P<v>{_NAME})\)",
                "user": rf"\binvalid user (?P<v>{_NAME})|\bfor user (?P<w>{_NAME}) from\b",
                "sudo": rf"(?m)\bsudo -u (?P<v>{_NAME})(?= |$)",
                "docker": rf"(?m)\blogin -u (?P<v>{_NAME})(?= |$)",
            },
        }
    ),
]
# alice@gpu-7:~$, ssh alice@gpu-7, [alice@gpu-7 ~]$, alice@10.0.0.5
AT = re.compile(
    rf"(?P<before>(?:\b(?:ssh|scp|sftp|rsync)\b[^\r\n@]{{0,200}}?[ \t]|\[|^|[\s\"'(])?)(?<!"
    rf"[\w@/.-])(?P<user>[A-Za-z_][\w.-]{{0,31}}|<user-\d+>)@(?P<host>{_HOST})(?P<after>:(?!\d)|: "
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
