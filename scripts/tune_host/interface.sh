# shellcheck shell=bash
# Knobs of one network interface.
#
# Sets of cores are words, split on purpose; tune_host.sh sets the names that are only read here.
# shellcheck disable=SC2086,SC2154,SC2034

check_interface() {
    local interface=$1 net=/sys/class/net/$1 queue steered='' file
    if ! [ -d "$root$net" ]; then
        name=$interface
        row "an interface" absent FAIL
        return
    fi
    check_interrupts
    check_node
    name="$interface rp_filter"
    check_reverse_path "/proc/sys/net/ipv4/conf"
    name="$interface receive steering"
    for file in "$root$net"/queues/rx-*/rps_cpus; do
        if value "${file#"$root"}"; then
            mask_cores "$REPLY"
            steered+="${REPLY:- none}"
        fi
    done
    if [ -z "$steered" ]; then
        absent off "$interface has no queues to steer"
    elif [ -z "${steered// none/}" ]; then
        row off off PASS
    else
        row off on FAIL
        for file in "$root$net"/queues/rx-*/rps_cpus; do
            value "${file#"$root"}"
            if [ "${REPLY//[0,]/}" ]; then set_file "${file#"$root"}" 0; fi
        done
    fi
    name="$interface napi_defer_hard_irqs"
    number "$net/napi_defer_hard_irqs" -eq $((prefer_busy_poll * 2))
    name="$interface gro_flush_timeout"
    number "$net/gro_flush_timeout" -eq $((prefer_busy_poll * 200000))
    name="$interface threaded NAPI"
    number "$net/threaded" -eq 0
    check_ethtool
}

check_interrupts() {
    local directory numbers=() number allowed near="$online" bad='' have='' want=off home
    name="$interface interrupts"
    for directory in "$net/device/msi_irqs" "$net/device/../msi_irqs"; do
        if [ -d "$root$directory" ]; then
            numbers=("$root$directory"/*)
            mapfile -t numbers < <(printf '%s\n' "${numbers[@]##*/}" | sort -n)
            break
        fi
    done
    if value "$net/device/numa_node" && value "/sys/devices/system/node/node$REPLY/cpulist"; then
        expand "$REPLY"
        near=$REPLY
    fi
    without "$near" $named
    home=$REPLY
    compress $home
    want="on ${REPLY:-other cores}"
    if [ ${#numbers[@]} = 0 ]; then absent "$want" "$interface has none of its own"; return; fi
    for number in "${numbers[@]}"; do
        value "/proc/irq/$number/smp_affinity_list" || continue
        allowed=$REPLY
        [[ " $have " == *" $allowed "* ]] || have+="${have:+ }$allowed"
        expand "$allowed"
        if [ "$REPLY" ] && ! within "$home" $REPLY; then bad+=" $number"; fi
    done
    if [ -z "$have" ]; then absent "$want" "no /proc/irq"; return; fi
    if [ -z "$named" ]; then row "$want" "on $have" N/A "no cores are named"; return; fi
    if judge "$want" "on $have" test -z "$bad" || [ -z "$home" ]; then return; fi
    compress $home
    home=$REPLY
    for number in $bad; do set_file "/proc/irq/$number/smp_affinity_list" "$home"; done
}

check_node() {
    local node
    name="$interface NUMA node"
    if ! value "$net/device/numa_node"; then
        absent "that of the cores" "the machine does not say"
        return
    fi
    node=$REPLY
    if [ "$node" = -1 ] || ! value "/sys/devices/system/node/node$node/cpulist"; then
        row "that of the cores" "$node" N/A "the machine does not say"
    elif [ -z "$rx" ]; then
        row "that of the cores" "$node" N/A "no cores are named"
    else
        node+=" ($REPLY)"
        expand "$REPLY"
        judge "that of $rx_list" "$node" within "$REPLY" $rx || true
    fi
}

# The kernel uses the larger of the interface's and the common setting: 0 off, 1 strict, 2 loose.
check_reverse_path() {
    local common
    if ! value "$1/all/rp_filter"; then absent "0 or 2" "no IPv4 here"; return; fi
    common=$REPLY
    if ! value "$1/$interface/rp_filter"; then absent "0 or 2" "no IPv4 here"; return; fi
    if ((common > REPLY)); then REPLY=$common; fi
    judge "0 or 2" "$REPLY" test "$REPLY" != 1 || set_file "$1/$interface/rp_filter" 2
}

# ask FLAG: what ethtool says; fails where the driver does not
ask() {
    REPLY=$(ethtool "$1" "$interface" 2> /dev/null) && [ "$REPLY" ]
}

check_ethtool() {
    local text why="the driver does not say"
    if ! command -v ethtool > /dev/null; then why="ethtool is not installed"; fi
    ask -c || REPLY=
    text=$REPLY
    switch adaptive-rx "Adaptive RX" off -C adaptive-rx
    switch rx-usecs rx-usecs 0 -C rx-usecs
    ask -g || REPLY=
    text=$REPLY
    check_ring
    ask -k || REPLY=
    text=$REPLY
    if [ "$gro" = 1 ]; then
        switch gro generic-receive-offload on -K gro
    else
        switch gro generic-receive-offload off -K gro
    fi
    switch lro large-receive-offload off -K lro
    switch rx-gro-hw rx-gro-hw off -K rx-gro-hw
    switch rx-checksumming rx-checksumming on -K rx
    ask -a || REPLY=
    text=$REPLY
    # A pause that was negotiated cannot be set before the negotiation is off.
    if field "$text" Autonegotiate && [[ $REPLY == on* && $text == *X:*on* ]]; then
        plan ethtool "$interface -A autoneg" on off
    fi
    switch "rx pause" RX off -A rx
    switch "tx pause" TX off -A tx
}

# switch NAME KEY WANT FLAG PARAMETER: judge one value of $text; "on [fixed]" cannot be changed
switch() {
    local have
    name="$interface $1"
    if ! field "$text" "$2" || [[ $REPLY == n/a* ]]; then absent "$3" "$why"; return; fi
    have=${REPLY%%[[:space:]]*}
    if [ "$have" = "$3" ]; then
        row "$3" "$have" PASS
    elif [[ $REPLY == *"[fixed]"* ]]; then
        row "$3" "$have" N/A "fixed by the driver"
    else
        row "$3" "$have" FAIL
        plan ethtool "$interface $4 $5" "$have" "$3"
    fi
}

# Enough for a burst; where the NIC has fewer, all of them.
check_ring() {
    local most have want=1024
    name="$interface rx ring"
    if ! field "${text%%Current*}" RX || ! [[ $REPLY =~ ^[0-9]+$ ]]; then
        absent "at least 1024" "$why"
        return
    fi
    most=$REPLY
    field "${text#*Current}" RX || true
    have=$REPLY
    if ((most < want)); then want=$most; fi
    judge "at least $want" "$have" test "$have" -ge "$want" \
        || plan ethtool "$interface -G rx" "$have" "$want"
}
