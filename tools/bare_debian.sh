#!/usr/bin/env bash
# Shows what a stranger sees: a minimal Debian, an ordinary user, only what the README names, 1,024 open files.
#
#     sudo tools/bare_debian.sh                        # Debian 12, Python 3.11.2: make demo, make test
#     sudo tools/bare_debian.sh --suite trixie         # Debian 13, Python 3.13
#     sudo tools/bare_debian.sh demo quick lint        # other targets
#
# Needs root and debootstrap, nothing else; MIRROR= names another Debian mirror. It works in a temporary directory, in
# namespaces of its own, and tells for each target its seconds and the megabytes that the checkout has grown to. How
# this machine reaches Debian and PyPI (/etc/apt/apt.conf.d, /etc/pip.conf, certificates, PIP_*) it takes along.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)

if [[ ${1-} == --inside ]]; then # in a mount and a process namespace of our own, which end with us
  root=$2
  shift 2
  mount --make-rprivate /
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  in_root=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive)
  for name in $(compgen -e | grep -E '^(PIP_(CERT|INDEX_URL|DEFAULT_TIMEOUT)$|SSL_CERT_|https?_proxy$|no_proxy$)' || true); do
    in_root+=("$name=${!name}")
  done
  in_root+=(chroot "$root")
  "${in_root[@]}" apt-get update -qq
  "${in_root[@]}" apt-get install -y -qq --no-install-recommends make python3-venv >/dev/null
  "${in_root[@]}" useradd --no-create-home stranger
  "${in_root[@]}" chown -R stranger: /home/stranger
  echo "== $("${in_root[@]}" cat /etc/debian_version), $("${in_root[@]}" python3 --version), as an ordinary user"
  echo "== without: $(for name in cc curl git ip java ps strace; do
    "${in_root[@]}" which "$name" >/dev/null || printf '%s ' "$name"
  done)"
  status=0
  for target in "$@"; do
    echo "== make $target"
    started=$SECONDS
    "${in_root[@]}" runuser -u stranger -- env HOME=/home/stranger \
      bash -c 'ulimit -n 1024 && cd ~/tidelog && make "$1"' bash "$target" || status=1
    echo "== make $target: $((SECONDS - started)) s, checkout and environments $(du -sm "$root/home/stranger/tidelog" | cut -f1) MB"
  done
  exit "$status"
fi

suite=bookworm
if [[ ${1-} == --suite ]]; then
  suite=$2
  shift 2
fi
(($#)) || set -- demo test
((EUID == 0)) || { echo "bare_debian: needs root, to make a Debian of its own" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "bare_debian: apt-get install debootstrap" >&2; exit 2; }

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root"
echo "== a minimal Debian, $suite"
debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "${MIRROR-http://deb.debian.org/debian}" >/dev/null
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts" # an installed Debian has it
cp -L /etc/resolv.conf "$root/etc/" 2>/dev/null || true
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
[[ ! -e /etc/pip.conf ]] || cp /etc/pip.conf "$root/etc/"
cp -rL /etc/ssl/certs/. "$root/etc/ssl/certs/" 2>/dev/null || true
mkdir -p "$root/home/stranger/tidelog"
tar -c -C "$checkout" --exclude=./.git --exclude='./.venv*' --exclude='./.*_cache' . | tar -x -C "$root/home/stranger/tidelog"
unshare --mount --pid --fork --kill-child bash "$checkout/tools/bare_debian.sh" --inside "$root" "$@"
