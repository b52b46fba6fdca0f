#!/usr/bin/env bash
# Compare this host with what a low-latency receiver wants. Reads /proc and /sys, changes nothing.
#
#   scripts/tune_host.sh [check] [--json]
#
# One row per setting: PASS, FAIL, or N/A where this kernel or machine does not have it.
# Exit code: 0 nothing failed, 1 something did, 2 usage.
set -euo pipefail

json=0
for argument in "$@"; do
    case "$argument" in
        check) ;;
        --json) json=1 ;;
        -h | --help)
            sed -n '2,7s/^# \{0,1\}//p' "$0"
            exit 0
            ;;
        *)
            echo "tune_host.sh: expected check or --json, found '$argument'" >&2
            exit 2
            ;;
    esac
done

failed=0
rows=()

# row NAME WANT HAVE VERDICT
row() {
    if [ "$4" = FAIL ]; then failed=1; fi
    if [ "$json" = 1 ]; then
        rows+=("$(printf '{"name": "%s", "want": "%s", "have": "%s", "result": "%s"}' "$@")")
    else
        printf '%-34s %-22s %-22s %s\n' "$@"
    fi
}

# have FILE: its content on one line, "absent" if there is none, "none" if it is empty
have() {
    local content
    if ! content=$(tr -s '\n\t' '  ' 2>/dev/null < "$1"); then
        echo absent
        return
    fi
    content=${content% }
    echo "${content:-none}"
}

# at_least NAME FILE LIMIT, at_most NAME FILE LIMIT: compare the number that the file holds
at_least() {
    local value
    value=$(have "$2")
    if [ "$value" = absent ]; then
        row "$1" "at least $3" absent N/A
    elif [ "$value" -ge "$3" ]; then
        row "$1" "at least $3" "$value" PASS
    else
        row "$1" "at least $3" "$value" FAIL
    fi
}

at_most() {
    local value
    value=$(have "$2")
    if [ "$value" = absent ]; then
        row "$1" "at most $3" absent N/A
    elif [ "$value" -le "$3" ]; then
        row "$1" "at most $3" "$value" PASS
    else
        row "$1" "at most $3" "$value" FAIL
    fi
}

# text NAME FILE WANT PATTERN: compare by a shell pattern
text() {
    local value
    value=$(have "$2")
    # The pattern is one on purpose.
    # shellcheck disable=SC2053
    if [ "$value" = absent ]; then
        row "$1" "$3" absent N/A
    elif [[ $value == $4 ]]; then
        row "$1" "$3" "$value" PASS
    else
        row "$1" "$3" "$value" FAIL
    fi
}

memlock() {
    local limit
    limit=$(ulimit -l)
    if [ "$limit" = unlimited ]; then
        row "limit on locked memory, KiB" unlimited "$limit" PASS
    else
        row "limit on locked memory, KiB" unlimited "$limit" FAIL
    fi
}

if [ "$json" = 0 ]; then printf '%-34s %-22s %-22s %s\n' setting want have result; fi
at_least net.core.rmem_max /proc/sys/net/core/rmem_max 67108864
at_least net.core.netdev_max_backlog /proc/sys/net/core/netdev_max_backlog 10000
at_least net.core.busy_poll /proc/sys/net/core/busy_poll 50
at_most vm.swappiness /proc/sys/vm/swappiness 10
text "frequency governor" /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor \
    performance performance
text "clock source" /sys/devices/system/clocksource/clocksource0/current_clocksource tsc tsc
text "transparent huge pages" /sys/kernel/mm/transparent_hugepage/enabled \
    "never or madvise" "*\[[mn]*"
text "isolated cores" /sys/devices/system/cpu/isolated "one or more" "[0-9]*"
text "cores without timer tick" /sys/devices/system/cpu/nohz_full "one or more" "[0-9]*"
memlock
if [ "$json" = 1 ]; then
    printf '[\n  %s' "${rows[0]}"
    printf ',\n  %s' "${rows[@]:1}"
    printf '\n]\n'
fi
exit "$failed"
