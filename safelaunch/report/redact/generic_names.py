"""Names too generic to identify anybody, and common words that a name may equal."""

from __future__ import annotations

import builtins
import keyword

USERS = frozenset((
    "root", "ubuntu", "debian", "centos", "fedora", "rocky", "user", "users", "admin",
    "administrator", "nobody", "runner", "vscode", "jovyan", "ec2-user", "azureuser", "opc",
    "cloud-user", "coder", "dev", "developer", "guest", "default", "public", "shared", "me",
    "you", "test", "tester", "linuxbrew", "conda", "anaconda", "miniconda", "git", "work",
    "workspace", "docker", "app", "service", "runtime", "project", "projects", "data", "system",
    "daemon",
))  # fmt: skip
HOSTS = frozenset((
    "localhost", "localhost.localdomain", "ip6-localhost", "host", "hostname", "node", "master",
    "worker", "head", "main", "local", "server", "client", "none", "null", "true", "false",
    "auto", "self", "args", "default", "container", "docker", "all", "any", "gpu", "cuda", "cpu",
    "unknown", "broadcasthost", "rank", "launcher",
))  # fmt: skip
# a user or host of such a name is replaced only where nothing else can be meant
WORDS = frozenset((
    "mon", "tue", "wed", "thu", "fri", "sat", "sun", "jan", "feb", "mar", "apr", "may", "jun",
    "jul", "aug", "sep", "oct", "nov", "dec", "input", "output", "request", "prompt", "text",
    "proxy", "api", "www", "mail", "db", "gateway", "cluster", "cloud", "docs", "index", "value",
    "torch", "train", "training", "trainer", "data", "dataset", "model", "models", "test",
    "tests", "batch", "step", "loss", "epoch", "rank", "node", "host", "user", "name", "file",
    "line", "error", "warning", "info", "debug", "max", "min", "mean", "run", "runs", "job",
    "jobs", "cuda", "nccl", "python", "main", "master", "worker", "layer", "token", "weight",
    "state", "init", "load", "save", "eval", "grad", "home", "local", "cache", "the", "and",
    "for", "with", "from", "this", "that", "not", "has", "was", "are", "can", "will", "launch",
    "script", "config", "process", "module", "package", "version",
)) | frozenset([*keyword.kwlist, *dir(builtins)])  # fmt: skip
# public services: requests to them are part of what happened, and identify nobody
PUBLIC = (
    "huggingface.co", "hf.co", "github.com", "githubusercontent.com", "gitlab.com", "pytorch.org",
    "pypi.org", "pythonhosted.org", "python.org", "nvidia.com", "wandb.ai", "readthedocs.io",
    "readthedocs.org", "openai.com", "anthropic.com", "docker.io", "docker.com", "anaconda.org",
    "anaconda.com", "modelscope.cn", "modelscope.ai", "deepspeed.ai", "ray.io", "vllm.ai",
    "tensorflow.org", "googleapis.com", "kernel.org", "ubuntu.com", "debian.org", "aliyun.com",
    "tsinghua.edu.cn", "ustc.edu.cn", "comet.com", "neptune.ai", "mlflow.org",
    "stackoverflow.com", "microsoft.com", "aka.ms", "arxiv.org", "apache.org", "quay.io",
    "gcr.io", "ghcr.io", "nvcr.io", "hf-mirror.com", "s3.amazonaws.com", "hooks.slack.com",
    "discord.com", "hf.space", "xethub.hf.co", "lightning.ai", "numpy.org", "scipy.org",
    "scikit-learn.org", "openssh.com", "libssh.org", "w3.org", "gnu.org",
)  # fmt: skip
