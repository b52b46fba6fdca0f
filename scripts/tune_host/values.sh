# shellcheck shell=bash
# Sets of cores, files and rows: what the knobs are read and judged with.
#
# Functions return text in REPLY: a subshell for each would take longer than all the rest.
#
# Sets of cores are words, split on purpose; tune_host.sh sets the names that are only read here.
# shellcheck disable=SC2086,SC2154,SC2034

# expand LIST: "0-2,5" becomes "0 1 2 5"
expand() {
    local part first last
    REPLY=
    for part in ${1//,/ }; do
        first=${part%%-*} last=${part##*-}
        for (( ; first <= last; first++)); do REPLY+="$first "; done
    done
    REPLY=${REPLY% }
}

# compress CORE...: "0 1 2 5" becomes "0-2,5"
compress() {
    local core first=-1 last=-1 text='' seen=()
    for core in "$@"; do seen[core]=1; done
    # The subscripts of an array come in order.
    for core in "${!seen[@]}" -1; do
        if ((first >= 0 && core == last + 1)); then
            last=$core
            continue
        fi
        if ((first >= 0)); then text+=,$first; fi
        if ((last > first)); then text+=-$last; fi
        first=$core last=$core
    done
    REPLY=${text#,}
}

# mask_cores MASK: the cores of a kernel mask, as "3,ffffffff"; cores_mask CORE...: the reverse
mask_cores() {
    local words word bit base=0
    REPLY=
    IFS=, read -ra words <<< "$1"
    for ((word = ${#words[@]} - 1; word >= 0; word--, base += 32)); do
        for ((bit = 0; bit < 32; bit++)); do
            if ((16#${words[word]} >> bit & 1)); then REPLY+="$((base + bit)) "; fi
        done
    done
    REPLY=${REPLY% }
}

cores_mask() {
    local core words=() word top=0
    for core in "$@"; do
        words[core / 32]=$((${words[core / 32]:-0} | 1 << core % 32))
        if ((core / 32 > top)); then top=$((core / 32)); fi
    done
    REPLY=
    for ((word = top; word >= 0; word--)); do
        printf -v REPLY '%s,%08x' "$REPLY" "${words[word]:-0}"
    done
    REPLY=${REPLY#,}
}

# without SET CORE...: SET less these. within SET CORE...: all are in it. touches: any is.
without() {
    local core set="$1"
    shift
    REPLY=
    for core in $set; do within "$*" "$core" || REPLY+="$core "; done
    REPLY=${REPLY% }
}

within() {
    local set=" $1 " core
    shift
    for core in "$@"; do [[ $set == *" $core "* ]] || return 1; done
}

touches() {
    local set="$1" core
    shift
    for core in "$@"; do if within "$set" "$core"; then return 0; fi; done
    return 1
}

# value FILE: its content on one line; fails where this kernel has no such file
value() {
    REPLY=
    [[ -f $root$1 && -r $root$1 ]] || return 1
    { IFS= read -r -d '' REPLY < "$root$1" || true; } 2> /dev/null
    REPLY=${REPLY//[$'\n\t']/ }
    while [[ $REPLY == *' ' ]]; do REPLY=${REPLY% }; done
}

# field TEXT KEY: what follows "KEY:" in its line of TEXT
field() {
    local line
    REPLY=
    while IFS= read -r line; do
        [[ $line == "$2:"* ]] || continue
        line=${line#"$2:"}
        REPLY=${line#"${line%%[![:space:]]*}"}
        return 0
    done <<< "$1"
    return 1
}

# row WANT HAVE RESULT [REASON]: one row of the table, about the knob $name
row() {
    if [ "$3" = FAIL ]; then failed=1; fi
    rows+=("$name" "$1" "$2" "$3" "${4:-}")
}

absent() { row "$1" absent N/A "$2"; }

# judge WANT HAVE COMMAND...: PASS if the command says so
judge() {
    if "${@:3}"; then row "$1" "$2" PASS; else row "$1" "$2" FAIL; return 1; fi
}

plan() {
    plan_name+=("$name") plan_kind+=("$1") plan_target+=("$2") plan_old+=("$3") plan_new+=("$4")
}

# set_file FILE NEW: when applying, write NEW to it
set_file() {
    if value "$1" && [ "$REPLY" != "$2" ]; then plan file "$1" "$REPLY" "$2"; fi
}

# number FILE COMPARISON LIMIT: judge a file that holds one number
number() {
    local want="$3"
    case "$2" in -ge) want="at least $3" ;; -le) want="at most $3" ;; esac
    if ! value "$1" || ! [[ $REPLY =~ ^-?[0-9]+$ ]]; then
        absent "$want" "this kernel has no such setting here"
    else
        judge "$want" "$REPLY" test "$REPLY" "$2" "$3" || set_file "$1" "$3"
    fi
}

# sysctl NAME COMPARISON LIMIT: judge a sysctl
sysctl() {
    name=$1
    number "/proc/sys/${1//.//}" "$2" "$3"
}
