# shellcheck shell=bash
# Knobs of the cores: who runs on them, how fast they are, how deep they sleep.
#
# Sets of cores are words, split on purpose; tune_host.sh sets the names that are only read here.
# shellcheck disable=SC2086,SC2154,SC2034

wake_us=10 # C1 and C1E of x86 wake in 2 to 10 us, deeper states in 100 and more

check_cores() {
    check_count
    check_isolation
    check_tick
    check_governor
    check_idle_states
    check_siblings
    check_clock
    check_work_queues
}

check_count() {
    local status list=''
    name=cores
    if value /proc/self/status; then
        mapfile -t status < "$root/proc/self/status"
        for REPLY in "${status[@]}"; do
            if [[ $REPLY == Cpus_allowed_list:* ]]; then list=${REPLY#*:}; fi
        done
    fi
    expand "${list//[[:space:]]/}"
    set -- $REPLY
    if [ $# = 0 ]; then absent "at least 2" "no /proc/self/status"; return; fi
    judge "at least 2" $# test $# -ge 2 || true
}

# Cores of which the scheduler keeps away: by the boot line, or by a cpuset partition.
check_isolation() {
    local words
    name="isolated cores"
    if value "$cpu/isolated"; then words=$REPLY; else words=; fi
    if value /sys/fs/cgroup/cpuset.cpus.isolated; then words+=,$REPLY; fi
    expand "$words"
    isolated=$REPLY
    compress $isolated
    if [ "$named" ]; then
        judge "$named_list" "${REPLY:-none}" within "$isolated" $named || true
    else
        judge "one or more" "${REPLY:-none}" test -n "$isolated" || true
    fi
}

check_tick() {
    local want="$strategy_list" ticking tickless='' have
    name="cores without timer tick"
    if [ "$rx_list" ]; then want+="${want:+, }not $rx_list"; fi
    if ! value "$cpu/nohz_full"; then
        absent "${want:-those of strategies}" "this kernel has no nohz_full"
    else
        have=${REPLY#(null)}
        expand "$have"
        tickless=$REPLY
        if [ -z "$named" ]; then
            row "those of strategies" "${have:-none}" N/A "no cores are named"
        else
            without "$strategy" $tickless
            ticking=$REPLY
            without "$tickless" $strategy
            judge "$want" "${have:-none}" no_wrong_tick "$ticking" "$REPLY" || true
        fi
    fi
    check_callbacks "$tickless"
}

# no_wrong_tick TICKING TICKLESS: no strategy's core ticks, no receiving core lacks the tick
no_wrong_tick() { [ -z "$1" ] && ! touches "$2" $rx; }

# check_callbacks TICKLESS: those cores hand over their RCU callbacks too
check_callbacks() {
    local word covered="$1"
    name="cores without RCU callbacks"
    if ! value /proc/cmdline; then
        absent "${named_list:-those named}" "no /proc/cmdline"
        return
    fi
    for word in $REPLY; do
        case "$word" in
            rcu_nocbs | rcu_nocbs=all) covered=$online ;;
            rcu_nocbs=*) expand "${word#*=}" && covered+=" $REPLY" ;;
        esac
    done
    compress $covered
    if [ -z "$named" ]; then
        row "those named" "${REPLY:-none}" N/A "no cores are named"
    else
        judge "$named_list" "${REPLY:-none}" within "$covered" $named || true
    fi
}

check_governor() {
    local core file have=
    name="frequency governor"
    for core in ${named:-$online}; do
        if value "$cpu/cpu$core/cpufreq/scaling_governor"; then
            within "$have" "$REPLY" || have+="${have:+ }$REPLY"
        fi
    done
    if [ -z "$have" ]; then absent performance "no frequency scaling here"; return; fi
    if judge performance "$have" test "$have" = performance; then return; fi
    for core in ${named:-$online}; do
        set_file "$cpu/cpu$core/cpufreq/scaling_governor" performance
    done
}

# A process that holds /dev/cpu_dma_latency open bounds how deep all cores may sleep.
check_idle_states() {
    local core state deepest=-1 held='' latency file="$root/dev/cpu_dma_latency"
    name="idle states"
    for core in ${named:-$online}; do
        for state in "$root$cpu/cpu$core"/cpuidle/state*; do
            state=${state#"$root"}
            if value "$state/latency"; then latency=$REPLY; else continue; fi
            if value "$state/disable" && [ "$REPLY" != 0 ]; then continue; fi
            if ((latency > deepest)); then deepest=$latency; fi
        done
    done
    if ((deepest < 0)); then
        absent "wake in $wake_us us or less" "no idle states to choose from here"
        return
    fi
    if [ -r "$file" ]; then held=$(od -An -td4 -N4 "$file" 2> /dev/null | tr -d ' '); fi
    if [ "$held" ] && ((held <= wake_us)); then
        row "wake in $wake_us us or less" "held to $held us" PASS
    elif judge "wake in $wake_us us or less" "$deepest us" test "$deepest" -le "$wake_us"; then
        return
    else
        for core in ${named:-$online}; do
            for state in "$root$cpu/cpu$core"/cpuidle/state*; do
                state=${state#"$root"}
                if value "$state/latency" && ((REPLY > wake_us)); then
                    set_file "$state/disable" 1
                fi
            done
        done
    fi
}

# A sibling that is isolated and not named has nothing to do.
check_siblings() {
    local core sibling busy=
    name="SMT siblings"
    if ! value "$cpu/smt/active"; then absent "off or idle" "no such cores here"; return; fi
    if [ "$REPLY" = 0 ]; then row "off or idle" off PASS; return; fi
    if [ -z "$named" ]; then row "off or idle" on FAIL; return; fi
    for core in $named; do
        value "$cpu/cpu$core/topology/thread_siblings_list" || continue
        expand "$REPLY"
        without "$REPLY" "$core"
        for sibling in $REPLY; do
            if within "$named" "$sibling" || ! within "$isolated" "$sibling"; then
                busy+=" $sibling"
            fi
        done
    done
    compress $busy
    judge "off or idle" "${REPLY:-none} busy" test -z "$busy" || true
}

check_clock() {
    local directory=/sys/devices/system/clocksource/clocksource0
    name="clock source"
    if ! value $directory/current_clocksource; then
        absent tsc "this kernel does not say"
        return
    fi
    if judge tsc "$REPLY" within "tsc arch_sys_counter" "$REPLY"; then return; fi
    if value $directory/available_clocksource && within "$REPLY" tsc; then
        set_file $directory/current_clocksource tsc
    fi
}

check_work_queues() {
    local file=/sys/devices/virtual/workqueue/cpumask set
    name="kernel work queues"
    if ! value $file; then absent "not on cores named" "this kernel does not say"; return; fi
    mask_cores "$REPLY"
    set=$REPLY
    compress $set
    if [ -z "$named" ]; then
        row "not on cores named" "$REPLY" N/A "no cores are named"
    elif ! judge "not on $named_list" "$REPLY" disjoint "$set" $named; then
        without "$set" $named
        if [ "$REPLY" ]; then
            cores_mask $REPLY
            set_file $file "$REPLY"
        fi
    fi
}

disjoint() { ! touches "$@"; }
