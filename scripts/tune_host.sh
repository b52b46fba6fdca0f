#!/usr/bin/env bash
# Compare this host with what a low-latency receiver wants, and set at run time what can be set.
#
#   scripts/tune_host.sh [check]     one row per knob: PASS, FAIL or N/A (why); changes nothing
#   scripts/tune_host.sh apply       set what failed, old -> new; the undo file is written first
#   scripts/tune_host.sh undo        put back every value that apply changed
#   scripts/tune_host.sh boot-line   print kernel arguments for the boot loader; edits nothing
#
#   --rx-cpus LIST        cores that receive (agent.core of each feed), as 2 or 2,4-5
#   --strategy-cpus LIST  cores on which strategies spin
#   --iface LIST          network interfaces of the feeds, as eth1 or eth1,eth2
#   --busy-poll           their sockets poll the NIC themselves (receive.busy_poll_us)
#   --prefer-busy-poll    and keep its interrupts off meanwhile (receive.prefer_busy_poll)
#   --gro                 their sockets take trains of datagrams (receive.gro)
#   --fifo                their loops spin with SCHED_FIFO (agent.fifo_priority)
#   --json                machine-readable output
#   --undo-file FILE      default /var/lib/udpfast-tune/undo; its directory must be root's alone
#   --root DIR            look for proc, sys and dev there (for tests)
#
# Exit code: 0 nothing failed, 1 something did, 2 usage. What each knob does: docs/operating.md.
#
# Sets of cores are words, split on purpose.
# shellcheck disable=SC2086,SC2034
set -euo pipefail

usage_line=20
verb='' json=0 root='' undo_file=/var/lib/udpfast-tune/undo
rx='' strategy='' interfaces=() busy_poll=0 prefer_busy_poll=0 gro=0 fifo=0
cpu=/sys/devices/system/cpu
failed=0 rows=() name=''
# What apply will do; one element each per change.
plan_name=() plan_kind=() plan_target=() plan_old=() plan_new=()

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=scripts/tune_host/values.sh
source "$here/tune_host/values.sh"
# shellcheck source=scripts/tune_host/cores.sh
source "$here/tune_host/cores.sh"
# shellcheck source=scripts/tune_host/memory.sh
source "$here/tune_host/memory.sh"
# shellcheck source=scripts/tune_host/network.sh
source "$here/tune_host/network.sh"
# shellcheck source=scripts/tune_host/interface.sh
source "$here/tune_host/interface.sh"
# shellcheck source=scripts/tune_host/undo.sh
source "$here/tune_host/undo.sh"

usage() {
    echo "tune_host.sh: $1" >&2
    exit 2
}

read_options() {
    while [ $# -gt 0 ]; do
        case "$1" in
            --rx-cpus | --strategy-cpus | --iface | --undo-file | --root)
                if [ $# = 1 ]; then usage "$1: expected a value, found none"; fi
                read_option "$1" "$2"
                shift
                ;;
            --json) json=1 ;;
            --busy-poll) busy_poll=1 ;;
            --prefer-busy-poll) prefer_busy_poll=1 ;;
            --gro) gro=1 ;;
            --fifo) fifo=1 ;;
            check | apply | undo | boot-line)
                if [ "$verb" ]; then usage "expected one of check, apply, undo, boot-line"; fi
                verb=$1
                ;;
            -h | --help)
                sed -n "2,${usage_line}s/^# \{0,1\}//p" "$0"
                exit 0
                ;;
            *) usage "expected check, apply, undo, boot-line or an option, found '$1'" ;;
        esac
        shift
    done
    verb=${verb:-check}
}

read_option() {
    case "$1" in
        --iface)
            if ! [[ $2 =~ ^[^,/]+(,[^,/]+)*$ ]]; then
                usage "--iface: expected interfaces as eth1 or eth1,eth2, found '$2'"
            fi
            IFS=, read -ra interfaces <<< "$2"
            ;;
        --undo-file) undo_file=$2 ;;
        --root) root=${2%/} ;;
        *)
            if ! is_core_list "$2"; then usage "$1: expected cores as 2 or 2,4-5, found '$2'"; fi
            expand "$2"
            if [ "$1" = --rx-cpus ]; then rx=$REPLY; else strategy=$REPLY; fi
            ;;
    esac
}

# is_core_list TEXT: no leading zeros, which would be octal, and no range from high to low
is_core_list() {
    local part number='(0|[1-9][0-9]{0,3})'
    [[ $1 =~ ^$number(-$number)?(,$number(-$number)?)*$ ]] || return 1
    for part in ${1//,/ }; do ((${part%%-*} <= ${part##*-})) || return 1; done
}

# The cores that were named, and those there are.
settle_cores() {
    local found
    value $cpu/online || REPLY=
    expand "$REPLY"
    online=$REPLY
    if ! within "$online" $rx $strategy; then
        compress $rx $strategy
        found=$REPLY
        compress $online
        usage "expected cores of this host (${REPLY:-none}), found '$found'"
    fi
    compress $rx
    rx_list=$REPLY
    compress $strategy
    strategy_list=$REPLY
    compress $rx $strategy
    named_list=$REPLY
    expand "$named_list"
    named=$REPLY
}

# What is not there cannot be set, and apply prints only what it sets.
need_interfaces() {
    local interface
    for interface in "${interfaces[@]}"; do
        if ! [ -d "$root/sys/class/net/$interface" ]; then
            usage "--iface: expected interfaces of this host, found '$interface'"
        fi
    done
}

check_all() {
    local interface
    check_cores
    check_kernel
    check_memory
    check_rights
    check_network
    for interface in "${interfaces[@]}"; do check_interface "$interface"; done
}

# print_table COLUMN...: rows of five as a table, or as JSON under these names
print_table() {
    local row column separator='['
    if [ "$json" = 0 ]; then printf '%-30s %-38s %-26s %s\n' "${@:1:4}"; fi
    for ((row = 0; row < ${#rows[@]}; row += 5)); do
        if [ "$json" = 1 ]; then
            printf '%s\n  {' "$separator"
            for ((column = 0; column < 5; column++)); do
                quote "${rows[row + column]}"
                if [ "$column" -gt 0 ]; then printf ', '; fi
                printf '"%s": "%s"' "${@:column + 1:1}" "$REPLY"
            done
            printf '}'
            separator=,
        else
            REPLY=${rows[row + 4]}
            printf '%-30s %-38s %-26s %s\n' "${rows[@]:row:3}" \
                "${rows[row + 3]}${REPLY:+ ($REPLY)}"
        fi
    done
    if [ "$json" = 1 ]; then
        if [ ${#rows[@]} = 0 ]; then printf '['; fi
        printf '\n]\n'
    fi
}

# quote TEXT: as it stands in a JSON string
quote() {
    REPLY=${1//\\/\\\\}
    REPLY=${REPLY//[$'\n\t']/ }
    REPLY=${REPLY//\"/\\\"}
}

need_root() {
    if [ -z "$root" ] && [ "$EUID" != 0 ]; then
        echo "tune_host.sh: $verb changes settings of the kernel: run it as root" >&2
        exit 1
    fi
}

# report TARGET OLD NEW ERROR: one row about a change
report() {
    if [ -z "$4" ]; then
        rows+=("$1" "$2" "$3" "done" "")
    else
        rows+=("$1" "$2" "$3" refused "${4##*: }")
        failed=1
    fi
}

apply() {
    local i error
    rows=() failed=0
    if [ ${#plan_name[@]} -gt 0 ]; then write_undo_file; fi
    for ((i = 0; i < ${#plan_name[@]}; i++)); do
        if [ "${plan_kind[i]}" = file ]; then
            error=$(write_file "${plan_target[i]}" "${plan_new[i]}"$'\n' 2>&1) || true
        else
            error=$(set_interface "${plan_target[i]}" "${plan_new[i]}" 2>&1) && error=
        fi
        report "${plan_target[i]}" "${plan_old[i]}" "${plan_new[i]}" "$error"
    done
}

# write_file FILE BYTES: in one write, as the kernel's files want it; says why if it is refused
write_file() {
    if ! is_kernel_file "$1"; then
        echo "expected an existing file below /proc/sys, /proc/irq or /sys, and no link"
        return 1
    fi
    printf '%s' "$2" > "$root$1"
}

# set_interface "IF FLAG PARAMETER" VALUE, as in "eth1 -C rx-usecs" 0
set_interface() {
    local words
    read -ra words <<< "$1"
    ethtool "${words[1]}" "${words[0]}" "${words[2]}" "$2"
}

# What has to be said at boot, for the cores that were named.
boot_line() {
    local words=() home driver=''
    if [ -z "$named" ]; then usage "boot-line: expected --rx-cpus or --strategy-cpus"; fi
    without "$online" $named
    if [ -z "$REPLY" ]; then usage "expected a core left for the rest of the host, found none"; fi
    compress $REPLY
    home=$REPLY
    words=("isolcpus=managed_irq,domain,$named_list" "irqaffinity=$home" "rcu_nocbs=$named_list")
    if [ "$strategy" ]; then words+=("nohz_full=$strategy_list"); fi
    words+=(skew_tick=1 nosoftlockup nowatchdog transparent_hugepage=madvise)
    if value /sys/devices/system/clocksource/clocksource0/current_clocksource \
        && [ "$REPLY" = tsc ]; then
        words+=(tsc=reliable)
    fi
    if value $cpu/cpuidle/current_driver; then driver=$REPLY; fi
    case "$driver" in
        intel_idle) words+=(intel_idle.max_cstate=1 processor.max_cstate=1) ;;
        acpi_idle) words+=(processor.max_cstate=1) ;;
    esac
    if [ "$json" = 1 ]; then
        printf '{"boot_line": "%s"}\n' "${words[*]}"
    else
        echo "${words[*]}"
    fi
}

read_options "$@"
settle_cores
case "$verb" in
    check)
        check_all
        print_table name want have result reason
        ;;
    apply)
        need_root
        need_interfaces
        need_trusted_undo_file
        check_all
        apply
        print_table setting old new result reason
        if [ "$json" = 0 ] && [ -f "$undo_file" ]; then echo "undo file: $undo_file"; fi
        ;;
    undo)
        need_root
        need_trusted_undo_file
        undo
        print_table setting old new result reason
        ;;
    boot-line) boot_line ;;
esac
exit "$failed"
