#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convoy run --swap as an operator tries it: in one process, in all, one after another, and back; every result still equals
# the reference, and every swap was made. Then swaps that cannot be made: the old build goes on, and the verdict says so.
# Usage: tests/integration/run_swap.sh; BIN=folder of the build, SECOND=another build of the plugin.
set -u
cd "$(dirname "$0")/../.." || exit 1
source tests/integration/report.sh
second=${SECOND:-build/release/tests/abi/plugins/libconvoy_b.so}
[ -r "$second" ] || { report swap_has_a_second_build "$second is not there"; exit 1; }

usage swap_without_a_step_is_usage 'must be FILE@STEP' "$convoy" run --swap "$second"
usage swap_of_a_rank_that_is_not_there_is_usage 'rank 4: must be 0 to 3' "$convoy" run --swap "$second@1:rank=4"
usage swap_back_before_it_went_is_usage 'must be behind step 10' "$convoy" run --swap "$second@10:back=10"
check swap_to_no_file_is_refused 1 'cannot read the plugin to swap to, .*none.so' "$convoy" run --swap "$work/none.so@1" --out "$work/none"

# swaps NAME COUNT PLAN ARGUMENT...: a replay and a pipeline that pass, with so many lines of swaps that were made.
swaps() {
    local name=$1 wanted=$2 plan=$3 made
    shift 3
    check "$name" 0 'replay passed: every result equals the reference' \
        "$convoy" run --swap "$second@$plan" --out "$work/$name.run" "$@"
    made=$(awk '/^(rank|encoder|denoiser|decoder) [0-9]+ / && NF >= 9 && /release/ { made += $3; failed += $4 } END { print made + 0 "/" failed + 0 }' \
        "$work/$name.out")
    [ "$made" = "$wanted/0" ] || report "${name}_counts" "made/failed is $made, wanted $wanted/0"
}
swaps swap_in_all_passes 4 500 --requests 0
swaps swap_in_one_passes 1 500:rank=2 --requests 0
swaps swap_in_all_and_back_passes 8 500:back=2500 --speed 100 --requests 0
swaps swap_one_after_another_and_back_passes 8 200:every=300:back=3000 --speed 100 --requests 0
swaps swap_of_eight_in_two_levels_passes 16 300:back=2000 --speed 100 --dp 2 --tp 2 --cp 2 --requests 0
swaps swap_of_one_process_passes 2 100:back=1000 --dp 1 --tp 1 --speed 200 --requests 0
swaps swap_at_the_first_step_passes 4 0 --requests 0
swaps swap_under_the_pipeline_passes 16 500:back=2500 --speed 100 --requests 60

check swap_that_is_never_reached_says_so 1 'replay finished, but rank 0 made 0 of 1 swaps before it ended; every result' \
    "$convoy" run --swap "$second@99999999" --requests 0 --out "$work/never"
echo text >"$work/text.so"
check swap_to_a_file_that_is_no_plugin_goes_on_with_the_old 1 \
    'replay finished, but a swap of rank 0 failed; every result equals the reference' \
    "$convoy" run --swap "$work/text.so@500:rank=0" --requests 0 --out "$work/refused"
exit "$failures"
