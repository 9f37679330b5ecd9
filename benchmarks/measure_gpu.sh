#!/usr/bin/env bash
# Measures a device in pieces of ten minutes: its operators, and whole steps of networks people train.
# Usage: benchmarks/measure_gpu.sh FOLDER [DEVICE] [MINUTES]; docs/how-to/profiling.md says what it needs.
# Every row is on the disk before the next is measured: the same command goes on where one ended.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:?"usage: benchmarks/measure_gpu.sh FOLDER [DEVICE] [MINUTES]"}
device=${2:-cuda:0}
minutes=${3:-40}
readonly piece=9 python=${PYTHON:-python3} site=$PWD/.measure carried=$PWD/carried
readonly spare_s=55 # of a piece, to end what it has begun and to compare

# A package of pip for each module; torch is never installed: the one there fits the driver.
declare -A packages=([click]=click [joblib]=joblib [numpy]=numpy [pynvml]=nvidia-ml-py [rich]=rich
    [scipy]=scipy [threadpoolctl]=threadpoolctl [yaml]=pyyaml)
export PYTHONPATH=$PWD:$site PYTHONUNBUFFERED=1

missing=()
for module in "${!packages[@]}"; do
    "$python" -c "import $module" 2>/dev/null || missing+=("${packages[$module]}")
done
if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "$python has no torch: name one that has, as in PYTHON=/opt/torch/bin/python3 $0" >&2
    exit 2
fi
if ((${#missing[@]})); then
    echo "installing into .measure: ${missing[*]}"
    source=()
    if [[ -d $carried ]]; then
        source=(--no-index --find-links "$carried")
    fi
    "$python" -m pip install --quiet --disable-pip-version-check --target "$site" "${source[@]}" "${missing[@]}"
fi

precision_time=("$python" -c 'from predictor.cli.main import main; main()')

end=$(awk "BEGIN { print int($SECONDS + 60 * $minutes) }")
number=0
while ((number == 0 || SECONDS + 60 < end)); do # what is left may be too short for a row
    number=$((number + 1))
    now=$(awk "BEGIN { left = ($end - $SECONDS) / 60; print (left < $piece ? left : $piece) }")
    limit=$(awk "BEGIN { print int(60 * $now + $spare_s) }")
    echo "piece $number: $now minutes"
    began=$SECONDS status=0
    timeout --signal=INT --kill-after=20 "$limit" "${precision_time[@]}" profile --device "$device" --out "$folder" \
        --minutes "$now" --verify || status=$?
    echo "piece $number took $((SECONDS - began)) s and ended with status $status"
    if ((status == 2)); then # what was asked for cannot be
        exit 2
    fi
done
"${precision_time[@]}" profiles check "$folder"
"${precision_time[@]}" profiles report "$folder" | tee "$folder/report.txt"
