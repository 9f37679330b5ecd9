#!/usr/bin/env bash
# Debian packages of the tests that need real daemons or a browser: sudo tools/install_debian_packages.sh
# Says nothing when all are there. None of their daemons is started, then or at the next boot:
# the tests start their own, in a temporary directory.
set -euo pipefail

readonly packages=(
    chromium chromium-driver
    liblua5.1-0 liblua5.3-0 liblua5.4-0 lua5.1 lua5.3 lua5.4 lua-socket
    mariadb-server munge postgresql prometheus
    slurm-client slurm-wlm-basic-plugins slurm-wlm-mysql-plugin slurmctld slurmd slurmdbd
)
declare -A services=(
    [mariadb-server]=mariadb [munge]=munge [postgresql]=postgresql [prometheus]=prometheus
    [slurmctld]=slurmctld [slurmd]=slurmd [slurmdbd]=slurmdbd
)
readonly policy=/usr/sbin/policy-rc.d # invoke-rc.d(8): exit code 101 forbids the action

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status == installed ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

if ((EUID)); then
    echo "installing ${missing[*]} needs root: sudo $0" >&2
    exit 1
fi

log=$(mktemp)
made_policy=
finish() {
    local status=$?
    ((status == 0)) || cat "$log" >&2
    rm -f "$log" ${made_policy:+"$policy"}
}
trap finish EXIT

if [[ ! -e $policy ]]; then
    made_policy=yes
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
apt_get() { apt-get --quiet --option Acquire::Retries=3 --option DPkg::Lock::Timeout=120 "$@"; }
echo "installing ${missing[*]}"
apt_get update >>"$log" 2>&1
apt_get install --yes --no-install-recommends "${missing[@]}" >>"$log" 2>&1
if [[ -d /run/systemd/system ]]; then
    for package in "${missing[@]}"; do
        service=${services[$package]:-}
        [[ -z $service ]] || systemctl --quiet disable "$service" >>"$log" 2>&1
    done
fi
