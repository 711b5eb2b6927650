# Sourced by scripts/test and .ci/run: the system packages that the suites need. They are installed
# where that may be done without a question (root, or sudo without a password, and apt-get);
# elsewhere one line says which suites are left out, and the command that adds them.
packages=() suites=()
needs() { # package, the suites without it, a command that it has
  PATH=$PATH:/usr/sbin:/sbin command -v "${@:3}" >/dev/null && return
  packages+=("$1")
  suites+=("$2")
}
needs git "tests of git checkouts" git
needs tmux "tests of runs in tmux" tmux
needs openssh-server "tests of SSH and of runs on hosts" sshd
needs openssh-client "tests of SSH and of runs on hosts" ssh
needs util-linux "tests of SSH and of starts as another user" unshare
needs zsh "tests of pasted lines in zsh" zsh
needs iproute2 "tests of runs on several machines" ip
needs slurm-wlm "tests of runs on Slurm" slurmctld slurmd sbatch
needs munge "tests of runs on Slurm" munged
if [ -n "${CI:-}" ]; then
  needs rclone "tests of uploads" rclone
  needs charliecloud "tests of containers within a job of Slurm" ch-run
  needs slurmdbd "tests of Slurm's accounting" slurmdbd
  needs mariadb-server "tests of Slurm's accounting" mariadbd
  needs docker.io "tests of runs in containers" dockerd
  needs podman "tests of runs in containers" podman
  needs runc "tests of runs in containers" runc
fi
"${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null || needs python3-venv "all tests" :none
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
if [ ${#packages[@]} -gt 0 ]; then
  if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
    echo "installing ${packages[*]} for the tests" >&2
    "${as_root[@]}" apt-get update -q >&2 && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -q -y --no-install-recommends "${packages[@]}" >&2 && packages=()
  fi
  if [ ${#packages[@]} -gt 0 ]; then
    left=$(printf '%s\n' "${suites[@]}" | sort -u | paste -sd, | sed 's/,/, /g')
    echo "left out: $left; to add them: sudo apt-get install ${packages[*]}" >&2
  fi
fi
