"""Secrets and names to plant: what stands in a text, and the part that must not be left of it."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

B = "b" + "CdEfGhIjKlMnOpQrStUvWxYz0123456789"  # what random letters look like to a pattern
# of a variable with a telling name, SERVICE_PASSWORD
PLAN_SECRET = 'pl4n"s$ecret/\\väl\tue'  # noqa: S105
USER, HOST, FQDN = "mustermann", "gpu-node-03", "gpu-node-03.cluster.example.edu"
HOME = f"/home/{USER}"
_PEM = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    + ("q" * 64 + "\n") * 5
    + "-----END OPENSSH PRIVATE KEY-----"
)
_JWT = (
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)

# each with a text, and what must not be left of it
PLANTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "hugging face": (f"token is hf_{B}", (f"hf_{B}", B)),
    "openai": (f"key sk-proj-{B}{B} used", (B,)),
    "anthropic": (f"ANTHROPIC sk-ant-api03-{B}-{B}AA", (B,)),
    "github": (f"clone with ghp_{B}", (B,)),
    "github fine-grained": (f"github_pat_11ABCDEFG0{B}_{B}", (B,)),
    "gitlab": ("glpat-Abc1234567890XyZ_-ab", ("Abc1234567890XyZ",)),
    "aws id": ("AKIAIOSFODNN7EXAMPLE", ("IOSFODNN7EXAMPLE",)),
    "aws key": ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ("K7MDENG",)),
    "aws session": ("AWS_SESSION_TOKEN=FwoGZXIvYXdzEJr//////////wEaDEexample==", ("FwoGZXIv",)),
    "gcp api key": ("AIzaSyA-1234567890abcdefghijklmnopqrstu", ("SyA-12345678",)),
    "gcp oauth": ("ya29.a0AfH6SMBx1234567890abcdefgh", ("a0AfH6SMB",)),
    "azure": ("AccountName=x;AccountKey=Zm9vYmFyYmF6MTIzNDU2Nzg5MA==;End=1", ("Zm9vYmFyYmF6",)),
    "azure client": ("client secret Abc8Q~DefGhiJklMnoPqrStuVwxYz0123456789", ("DefGhiJkl",)),
    "slack": ("xoxb-1234567890-abcdefghijklmnop", ("1234567890-abcd",)),
    "slack hook": (
        "https://hooks.slack.com/services/T00AA/B00BB/XyZsecretpath1",
        ("XyZsecretpath1",),
    ),
    "wandb": ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", ("0123456789abcdef01",)),
    "jwt": (f"got {_JWT} back", ("dozjgNryP4J3", "eyJzdWIiOiIx")),
    "pem": (_PEM, ("q" * 16,)),
    "ssh public key": (
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGx7planted0000key commenting@somewhere-7",
        ("planted0000key", "commenting", "somewhere-7"),
    ),
    "bearer": ("Authorization: Bearer pl4nted-bearer.value_1", ("pl4nted-bearer",)),
    "basic": (
        f"authorization: Basic {base64.b64encode(b'me:pl4ntedbasic').decode()}",
        ("bWU6cGw0",),
    ),
    "cookie": (
        "Cookie: session=pl4ntedcookie; csrf=alsoplanted9",
        ("pl4ntedcookie", "alsoplanted9"),
    ),
    "api key header": ("x-api-key: pl4nted.header.key", ("pl4nted.header",)),
    "option": ("run.py --db-password pl4ntedoption --lr 1", ("pl4ntedoption",)),
    "option =": ("run.py --auth-token=pl4ntedoption2 --lr 1", ("pl4ntedoption2",)),
    "option in a list": ("['run.py', '--password', 'pl4ntedoption3']", ("pl4ntedoption3",)),
    "assignment": ("export DB_PASSWORD='pl4nted pass word'", ("pl4nted pass", "pass word'")),
    "yaml": ("secret: pl4ntedyaml", ("pl4ntedyaml",)),
    "json": (json.dumps({"hub_token": "pl4ntedjson1"}), ("pl4ntedjson1",)),
    "python": ("login(hf_token='pl4ntedpython', x=1)", ("pl4ntedpython",)),
    "camel": ('{"accessToken":"pl4ntedcamel"}', ("pl4ntedcamel",)),
    "url": (
        "postgres://svc:pl4ntedurl@db.internal.example.edu:5432/x",
        ("pl4ntedurl", "internal.example"),
    ),
    "url token": ("https://pl4ntedurltoken@github.com/a/b.git", ("pl4ntedurltoken",)),
    "query": ("https://huggingface.co/a?X-Amz-Signature=pl4ntedsig1&b=1", ("pl4ntedsig1",)),
    "proxy": (
        "https_proxy=http://px:pl4ntedproxy@proxy.firm.example.com:3128",
        ("pl4ntedproxy", "proxy.firm"),
    ),
    "curl": ("curl -u admin:pl4ntedcurl https://huggingface.co", ("pl4ntedcurl",)),
    "netrc": ("machine api.wandb.ai login user password pl4ntednetrc1", ("pl4ntednetrc1",)),
    "docker login": (
        "docker login -u plantedlogin -p pl4ntedlogin",
        ("plantedlogin", "pl4ntedlogin"),
    ),
    "prompt": ("(base) plantedprompt@plantedbox:~/x$ ls", ("plantedprompt", "plantedbox")),
    "connection string": (
        'AZURE_STORAGE_CONNECTION_STRING="AccountName=a;AccountKey=pl4ntedazure=="',
        ("pl4ntedazure",),
    ),
    "user's name in a password": (f"DB_PASSWORD={USER}-pl4nted", ("-pl4nted",)),
    "ipv4": ("connect to 10.20.30.41:29500 failed", ("10.20.30.41",)),
    "ipv4 public": ("Host 203.0.113.77 is down", ("203.0.113.77",)),
    "ipv6": ("inet6 2001:db8:85a3::8a2e:370:7334/64", ("2001:db8", "8a2e:370")),
    "mac": ("link/ether 52:54:00:ab:cd:ef brd ff:ff:ff:ff:ff:ff", ("52:54:00:ab",)),
    "infiniband guid": ("node_guid: 506b:4b03:00a1:b2c3", ("506b:4b03",)),
    "e-mail": ("mail erika.planted@firm.example.org now", ("erika.planted", "firm.example")),
    "author": ("Author: Erika Planted-Name <x@firm.example.org>", ("Planted-Name",)),
    "user in a path": (f'File "{HOME}/exp/train.py", line 3', (USER,)),
    "user elsewhere": (f"/scratch/{USER}/data and {USER}_run", (USER,)),
    "windows user": (r"C:\Users\plantedwinuser\job.yaml", ("plantedwinuser",)),
    "mac user": ("/Users/plantedmacuser/job.yaml", ("plantedmacuser",)),
    "other user": (
        "wandb: Currently logged in as: plantedwandb (plantedteam).",
        ("plantedwandb", "plantedteam"),
    ),
    "uid": ("uid=1001(planteduid) gid=1001(planteduid)", ("planteduid",)),
    "host nccl": ("nccl-node-77:4242:4243 [0] NCCL INFO Bootstrap", ("nccl-node-77",)),
    "host torchrun": ("  host      : run-node-78.lan", ("run-node-78",)),
    "host c10d": ("failed to connect to [c10d-node-79]:29500", ("c10d-node-79",)),
    "host ssh": (
        "planteduser2@ssh-node-80: Permission denied (publickey).",
        ("ssh-node-80", "planteduser2"),
    ),
    "own host": (f"{HOST} and {FQDN} and {HOST.upper()}", (HOST, HOST.upper(), "cluster.example")),
    "bucket": ("s3://planted-bucket-1/ckpt", ("planted-bucket-1",)),
    "gpu": ("GPU-8f6a2c1e-1111-2222-3333-444455556666", ("8f6a2c1e",)),
    "serial": ("Serial Number : 1320921000123", ("1320921000123",)),
    "uuid": ("machine 6ba7b810-9dad-11d1-80b4-00c04fd430c8", ("6ba7b810",)),
    "plan secret": (f"it is {PLAN_SECRET}!", ("pl4n", "s$ecret", "lue!")),
    "plan secret in json": (json.dumps([PLAN_SECRET]), ("pl4n", "s$ecret")),
    "plan secret in json twice": (json.dumps(json.dumps([PLAN_SECRET])), ("pl4n", "s$ecret")),
    "plan secret quoted": (f"u={quote(PLAN_SECRET, safe='')}", ("pl4n", "ecret%2F")),
    "plan secret in base64": (
        base64.b64encode(f"user:{PLAN_SECRET}:x".encode()).decode(),
        (base64.b64encode(f"user:{PLAN_SECRET}:x".encode()).decode()[8:24],),
    ),
    "plan secret in repr": (repr([PLAN_SECRET, "'"]), ("pl4n", "s$ecret")),
}
# what must stay as it is
HARMLESS = """\
Traceback (most recent call last):
  File "/opt/conda/lib/python3.10/site-packages/torch/nn/modules/module.py", line 1511, in _call
    return forward_call(*args, **kwargs)
  File "train.py", line 88, in step
    tokenizer.pad_token = tokenizer.eos_token
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 23.65 GiB
[rank3]:[E1122 01:40:56.123456789 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective
NCCL version 2.21.5+cuda12.4
NCCL INFO Channel 00/02 :    0   1   2   3
NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>
NCCL INFO comm 0x55d2f3a0 rank 0 nranks 4 cudaDev 0 busId 3b000 commId 0x9f1c2d3e4b5a6978
nvidia-cublas-cu12==12.4.5.8 nvidia-curand-cu12 10.3.5.147 libcudart.so.12.4.0.1
CUDA 12.4.0.1, cuDNN 9.1.0.70, driver 550.54.15, torch 2.6.0+cu124, Python 3.11.7
commit 00485c11f542e37db809c0ebf983fc870da566bc
terminate called after throwing an instance of 'c10::Error'  at::native::add std::vector<int>
step 100/1000 loss 1.234 tokens/s 4096 token: 151643 max_tokens=512 eos_token='</s>' key: value
Namespace(lr=0.0001, hub_token=None, push_to_hub=False, num_tokens=4096)
torchrun --nproc_per_node=4 --master_port=29500 --rdzv_endpoint=localhost:29500 train.py
https://huggingface.co/meta-llama/Llama-3.1-8B/resolve/main/config.json: 401 Client Error
bound to 0.0.0.0:8000, http://127.0.0.1:29500, 12:34:56, 2026-11-22T01:40:56, 0000:3b:00.0
User: Explain the theory of x
user: hello there
Host: Welcome to the show
Assistant: password reset is easy. Secret: none. The secret of life, the token: hello world
speed ~tokens/s, for user input, Connection to host: timed out, Last login: Mon Nov 2
x[1::2] a[::1] self.net(x) threading.local() google.protobuf.internal.builder
RuntimeError: Expected all tensors to be on the same device, but found cuda:0 and cpu!
exitcode: -9 (pid: 12345) of binary: /usr/bin/python3, SIGKILL, errno: 98 - Address already in use
"""
