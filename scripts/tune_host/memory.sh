# shellcheck shell=bash
# Knobs of the kernel, of memory, and of this user's rights.
#
# Sets of cores are words, split on purpose; tune_host.sh sets the names that are only read here.
# shellcheck disable=SC2086,SC2154,SC2034

check_kernel() {
    sysctl kernel.numa_balancing -eq 0
    sysctl kernel.timer_migration -eq 0
    sysctl kernel.nmi_watchdog -eq 0
    sysctl vm.stat_interval -ge 10
    sysctl vm.swappiness -le 10
    if [ "$fifo" = 1 ]; then
        sysctl kernel.sched_rt_runtime_us -eq -1
    elif name=kernel.sched_rt_runtime_us && value /proc/sys/kernel/sched_rt_runtime_us; then
        row -1 "$REPLY" N/A "only for loops that spin with SCHED_FIFO"
    else
        absent -1 "only for loops that spin with SCHED_FIFO"
    fi
}

check_memory() {
    local file=/sys/kernel/mm/transparent_hugepage/enabled free
    name="transparent huge pages"
    if ! value $file; then
        absent "madvise or never" "this kernel has none"
    elif [[ $REPLY =~ \[([a-z]+)\] ]]; then
        judge "madvise or never" "${BASH_REMATCH[1]}" test "${BASH_REMATCH[1]}" != always \
            || plan file $file "$REPLY" madvise
    else
        absent "madvise or never" "this kernel does not say"
    fi
    name="free in /dev/shm"
    if ! free=$(df -B1 --output=avail "$root/dev/shm" 2> /dev/null); then
        absent "192 MiB" "no /dev/shm"
    else
        free=${free//[!0-9]/}
        judge "192 MiB" "$((free >> 20)) MiB" test "$free" -ge $((192 << 20)) || true
    fi
}

# capable BIT: whether this process has the right (capabilities(7))
capable() {
    local line
    [ -r "$root/proc/self/status" ] || return 1
    while IFS= read -r line; do
        if [[ $line == CapEff:* ]]; then
            line=${line//[[:space:]]/}
            ((16#${line#CapEff:} >> $1 & 1)) && return 0
        fi
    done < "$root/proc/self/status"
    return 1
}

# limit WORDS...: the soft limit of that name in /proc/self/limits
limit() {
    local line
    REPLY=
    [ -r "$root/proc/self/limits" ] || return 1
    while IFS= read -r line; do
        if [[ $line == "$1 "* ]]; then
            set -- ${line#"$1"}
            REPLY=$1
            return 0
        fi
    done < "$root/proc/self/limits"
    return 1
}

check_rights() {
    name="locked memory"
    if capable 14; then
        row "unlimited, or CAP_IPC_LOCK" CAP_IPC_LOCK PASS
    elif ! limit "Max locked memory"; then
        absent "unlimited, or CAP_IPC_LOCK" "no /proc/self/limits"
    elif [ "$REPLY" = unlimited ]; then
        row "unlimited, or CAP_IPC_LOCK" unlimited PASS
    else
        row "unlimited, or CAP_IPC_LOCK" "$((REPLY >> 10)) KiB" FAIL
    fi
    name=SCHED_FIFO
    if capable 23; then
        row "RLIMIT_RTPRIO, or CAP_SYS_NICE" CAP_SYS_NICE PASS
    elif ! limit "Max realtime priority"; then
        absent "RLIMIT_RTPRIO, or CAP_SYS_NICE" "no /proc/self/limits"
    else
        judge "RLIMIT_RTPRIO, or CAP_SYS_NICE" "limit $REPLY" test "$REPLY" != 0 || true
    fi
}
