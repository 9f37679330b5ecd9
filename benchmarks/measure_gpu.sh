#!/usr/bin/env bash
# Measures a device in pieces of ten minutes: its operators, whole steps of networks people train,
# and collectives where it has several GPUs. docs/how-to/profiling.md says what it needs.
# Usage: benchmarks/measure_gpu.sh FOLDER [DEVICE] [MINUTES]
# MINUTES are all it takes, the page at the end included. Every row is on the disk before the next
# is measured, and FOLDER.tar.gz is made anew twice a minute: the same command goes on where one
# ended, on another machine too, where that file is all that is left of FOLDER.
set -euo pipefail

folder=$(realpath -m "${1:?"usage: benchmarks/measure_gpu.sh FOLDER [DEVICE] [MINUTES]"}")
device=${2:-cuda:0}
minutes=${3:-40}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly piece=${PIECE:-9} python=${PYTHON:-python3} carried=$PWD/carried
readonly site=$(dirname "$folder")/.measure
# Seconds of a piece before and behind its rows, and of the page at the end.
readonly start_s=25 page_s=${PAGE_S:-75}

# A package of pip for each module; torch is never installed: the one there fits the driver.
declare -A packages=([click]=click [joblib]=joblib [numpy]=numpy [pynvml]=nvidia-ml-py [rich]=rich
    [scipy]=scipy [threadpoolctl]=threadpoolctl [yaml]=pyyaml)
export PYTHONPATH=$PWD:$site PYTHONUNBUFFERED=1

if ! missing=$("$python" -c 'import importlib.util, sys
sys.exit("no torch") if importlib.util.find_spec("torch") is None else None
print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))' "${!packages[@]}"); then
    echo "$python has no torch: name one that has, as in PYTHON=/opt/torch/bin/python3 $0" >&2
    exit 2
fi
read -ra missing <<<"$missing"
for number in "${!missing[@]}"; do
    missing[number]=${packages[${missing[number]}]}
done
if ((${#missing[@]})); then
    echo "installing into $site: ${missing[*]}"
    source=()
    if [[ -d $carried ]]; then
        source=(--no-index --find-links "$carried")
    fi
    "$python" -m pip install --quiet --disable-pip-version-check --target "$site" "${source[@]}" "${missing[@]}"
fi
if [[ ! -d $folder && -f $folder.tar.gz ]]; then
    tar -xzf "$folder.tar.gz" -C "$(dirname "$folder")"
fi
mkdir -p "$folder"

# Collectives over all GPUs, over half of them, ...: one group a piece.
groups=(${RANKS:-})
if [[ $device != cpu ]]; then
    for ((ranks = $("$python" -c 'import torch; print(torch.cuda.device_count())'); ranks > 1; ranks /= 2)); do
        groups+=("$ranks")
    done
fi

precision_time=("$python" -c 'from predictor.cli.main import main; main()')

rows() { # of all tables, those in quarantine too
    find "$folder" -name '*.csv' -exec cat {} + | wc -l
}

pack() { # tables may grow meanwhile: half a row at their end is dropped when they are gone on with
    tar --warning=no-file-changed -czf "$folder.$BASHPID" -C "$(dirname "$folder")" "$(basename "$folder")" || true
    mv "$folder.$BASHPID" "$folder.tar.gz"
}
while sleep 30 && kill -0 $$; do pack; done 2>/dev/null & # a limit of the machine may end all this
trap "kill $!" EXIT

end=$(awk "BEGIN { print int($SECONDS + 60 * $minutes - $page_s) }")
number=0 barren=0 status=0
while ((number == 0 || SECONDS + 60 < end)); do # what is left may be too short for a row
    limit=$(awk "BEGIN { left = $end - $SECONDS; print int(left < 60 * $piece ? left : 60 * $piece) }")
    now=$(awk "BEGIN { left = $limit - $start_s; print (left > 3 ? left : 3) / 60 }")
    more=()
    if ((number < ${#groups[@]})); then
        more=(--ranks "${groups[number]}")
    fi
    number=$((number + 1))
    echo "piece $number: $now minutes"
    began=$SECONDS before=$(rows) status=0
    timeout --signal=INT --kill-after=20 "$limit" "${precision_time[@]}" profile --device "$device" --out "$folder" \
        --minutes "$now" --train "${more[@]}" || status=$?
    pack
    echo "piece $number took $((SECONDS - began)) s and ended with status $status, $(($(rows) - before)) rows more"
    if ((status != 0 && $(rows) == before)); then # what was asked for cannot be, or not now
        barren=$((barren + 1))
        if ((barren == 2 || (status == 2 && ${#more[@]} == 0))); then # a group of GPUs may not meet
            exit "$status"
        fi
    fi
done
began=$SECONDS status=0
"${precision_time[@]}" profiles check "$folder" || status=$?
"${precision_time[@]}" profiles report "$folder" | tee "$folder/report.txt" || status=$?
pack
echo "the page took $((SECONDS - began)) s; $folder.tar.gz has it all"
exit "$status"
