# shellcheck shell=bash
# Knobs between NIC and sockets: those of the whole host.
#
# Sets of cores are words, split on purpose; tune_host.sh sets the names that are only read here.
# shellcheck disable=SC2086,SC2154,SC2034

rmem_max=67108864 # a burst of 100,000 datagrams with the kernel's bookkeeping

check_network() {
    check_receive_memory
    sysctl net.core.netdev_max_backlog -ge 10000
    check_backlog
    for name in net.core.busy_poll net.core.busy_read; do
        if [ "$busy_poll" = 0 ]; then
            sysctl $name -ge 50
        else
            value "/proc/sys/${name//.//}" || REPLY=absent
            row "at least 50" "$REPLY" N/A "the feed's sockets ask for it themselves"
        fi
    done
    sysctl net.ipv4.igmp_max_memberships -ge 20
    name=irqbalance
    if ! [ -d "$root/proc/self" ]; then
        absent "not running" "no /proc"
    elif grep -qsx irqbalance "$root"/proc/[0-9]*/comm; then
        row "not running" running FAIL
    else
        row "not running" "not running" PASS
    fi
}

# Sockets of root may pass the limit; those of the feed's own user may not, so apply raises it.
check_receive_memory() {
    local want="at least $rmem_max, or CAP_NET_ADMIN" file=/proc/sys/net/core/rmem_max
    name=net.core.rmem_max
    if ! value $file; then
        absent "$want" "this kernel has no such setting here"
    elif [ "$REPLY" -ge "$rmem_max" ]; then
        row "$want" "$REPLY" PASS
    else
        plan file $file "$REPLY" "$rmem_max"
        if capable 12; then
            row "$want" "$REPLY and CAP_NET_ADMIN" PASS
        else
            row "$want" "$REPLY" FAIL
        fi
    fi
}

# The kernel's queue between NIC and sockets: what it dropped, how often its turn was cut short.
check_backlog() {
    local line words drops=0 squeezes=0
    name="backlog drops"
    if ! [ -r "$root/proc/net/softnet_stat" ]; then
        absent 0 "no /proc/net/softnet_stat"
    else
        while read -ra words; do
            drops=$((drops + 16#${words[1]}))
            squeezes=$((squeezes + 16#${words[2]}))
        done < "$root/proc/net/softnet_stat"
        judge 0 $drops test $drops = 0 || true
    fi
    for line in "net.core.netdev_budget 600" "net.core.netdev_budget_usecs 8000"; do
        if [ $squeezes -gt 0 ]; then
            sysctl ${line% *} -ge ${line#* }
        else
            name=${line% *}
            value "/proc/sys/${name//.//}" || REPLY=absent
            row "at least ${line#* }" "$REPLY" N/A "no turn of the receive loop was cut short"
        fi
    done
}
