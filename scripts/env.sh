# Sourced by the other scripts: a virtual environment in .venv with safelaunch and its tools.
# SAFELAUNCH_VENV names another place; PYTHON another interpreter (3.10 or newer).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=${SAFELAUNCH_VENV:-$PWD/.venv}
# what is installed follows from these files alone; a change of them installs again
stamp=$(cat pyproject.toml scripts/constraints.txt scripts/env.sh | cksum)
if [ "$(cat "$venv/installed" 2>/dev/null)" != "$stamp" ]; then
  python=${PYTHON:-python3}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || {
    echo "$python is no Python 3.10 or newer; name one: PYTHON=/path/to/python3 $0" >&2
    exit 1
  }
  echo "installing into $venv (once; torch is the largest part)" >&2
  "$python" -m venv "$venv"
  pip=("$venv/bin/python" -m pip install -q --disable-pip-version-check -c scripts/constraints.txt)
  if [ "$(uname)" = Linux ] && ! command -v nvidia-smi >/dev/null; then
    # PyPI's torch for Linux brings several GB of CUDA; PyTorch's own index has it without. Where
    # that index cannot be reached, the next line takes what there is.
    "${pip[@]}" --retries 0 --timeout 10 --index-url https://download.pytorch.org/whl/cpu torch \
      2>/dev/null || true
  fi
  "${pip[@]}" -e '.[train,dev]'
  printf '%s' "$stamp" >"$venv/installed"
fi
export PATH="$venv/bin:$PATH"
unset PYTHONPATH
