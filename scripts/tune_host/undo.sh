# shellcheck shell=bash
# The undo file: which values there were, and who may have a say in that.
#
# It holds the boot's id (what was set does not outlive a boot), then a line per value: kind,
# target, and in base64 the bytes it had. The first ever seen of a target stays. As it tells root
# what to write where, nobody else may write it, exchange it, or lead another way to it; and
# whatever it says, nothing is written but settings of the kernel that there are.
#
# tune_host.sh sets the names that are only read here.
# shellcheck disable=SC2154

# need_trusted_undo_file: it is root's alone, or can be made so
need_trusted_undo_file() {
    local directory name=${undo_file##*/}
    if [[ /$undo_file/ == */../* || -z $name ]]; then
        usage "--undo-file: expected a file's path without '..', found '$undo_file'"
    fi
    directory=$(dirname "$undo_file")
    while ! [ -e "$directory" ] && ! [ -L "$directory" ]; do directory=$(dirname "$directory"); done
    # As it is named, with its links, and as it is: neither way may be led elsewhere.
    for directory in "$(realpath -s "$directory")" "$(realpath "$directory")"; do
        if ! is_trusted "$directory"; then refuse_undo_file; fi
    done
    if [ -e "$undo_file" ] || [ -L "$undo_file" ]; then
        REPLY="$undo_file is no file"
        if ! [ -f "$undo_file" ] || [ -L "$undo_file" ]; then refuse_undo_file; fi
        if ! is_trusted "$undo_file"; then refuse_undo_file; fi
    fi
    undo_file="$(realpath -m "$(dirname "$undo_file")")/$name"
}

refuse_undo_file() {
    echo "tune_host.sh: expected an undo file that only root can write, found that $REPLY" >&2
    exit 1
}

# is_trusted PATH: it and all directories above it are of root, or of who runs this, and nobody else
# may write to them; but a directory above may be one, as /tmp, where nobody moves what is another's
is_trusted() {
    local path=$1 owner mode kind
    while true; do
        read -r owner mode kind < <(stat -c '%u %a %F' "$path")
        if [ "$owner" != 0 ] && [ "$owner" != "$EUID" ]; then
            REPLY="$path is of user $owner"
            return 1
        fi
        if ((8#$mode & 8#22)) && [ "$kind" != "symbolic link" ] \
            && { [ "$path" = "$1" ] || ! ((8#$mode & 8#1000)); }; then
            REPLY="$path has mode $mode"
            return 1
        fi
        if [ "$path" = / ]; then return; fi
        path=$(dirname "$path")
    done
}

# is_kernel_file TARGET: a file that there is below /proc/sys, /proc/irq or /sys, and no link. Its
# directory may be one, as /sys/class/net/eth1 is, that does not lead out of there.
is_kernel_file() {
    local real top
    if [[ $1/ == */../* || -L $root$1 || ! -f $root$1 ]]; then return 1; fi
    real=$(realpath -e "$root$1") || return 1
    for top in "$root" ''; do
        if [ "$top" ]; then top=$(realpath "$top"); fi
        case "${real#"$top"}" in
            /proc/sys/* | /proc/irq/* | /sys/*)
                case "$1" in /proc/sys/* | /proc/irq/* | /sys/*) return 0 ;; esac
                ;;
        esac
    done
    return 1
}

# is_line KIND TARGET BYTES: a line that apply may have written, its bytes with a dot behind them
is_line() {
    case "$1" in
        file) [[ $3 == *. ]] ;;
        ethtool)
            [[ $2 =~ ^[^-/[:space:]][^/[:space:]]*\ -[ACGK]\ [a-z][a-z-]*$ && $3 =~ ^[a-z0-9]+\.$ ]]
            ;;
        *) return 1 ;;
    esac
}

boot_id() {
    value /proc/sys/kernel/random/boot_id || REPLY=unknown
}

write_undo_file() {
    local i line known bytes kept=()
    boot_id
    if [ -f "$undo_file" ]; then mapfile -t kept < "$undo_file"; fi
    if [ "${kept[0]:-}" != "boot $REPLY" ]; then kept=("boot $REPLY"); fi
    for ((i = 0; i < ${#plan_name[@]}; i++)); do
        line="${plan_kind[i]}"$'\t'"${plan_target[i]}"$'\t'
        for known in "${kept[@]}"; do
            if [[ $known == "$line"* ]]; then continue 2; fi
        done
        if [ "${plan_kind[i]}" = file ]; then
            bytes=$(base64 -w0 "$root${plan_target[i]}")
        else
            bytes=$(printf '%s' "${plan_old[i]}" | base64 -w0)
        fi
        kept+=("$line$bytes")
    done
    (umask 077 && mkdir -p "$(dirname "$undo_file")")
    replace_undo_file "${kept[@]}"
}

# replace_undo_file LINE...: all of them, or the file as it was
replace_undo_file() {
    rm -f "$undo_file.new"
    (umask 077 && printf '%s\n' "$@" > "$undo_file.new")
    sync "$undo_file.new"
    mv "$undo_file.new" "$undo_file"
}

# The last change is undone first. What cannot be put back stays in the file.
undo() {
    local lines line i kind target bytes error left=()
    if ! [ -f "$undo_file" ]; then
        echo "tune_host.sh: nothing to undo: there is no $undo_file" >&2
        exit 1
    fi
    mapfile -t lines < "$undo_file"
    boot_id
    if [ "${lines[0]:-}" != "boot $REPLY" ]; then
        echo "tune_host.sh: nothing to undo: $undo_file is of an earlier boot" >&2
        rm "$undo_file"
        return
    fi
    for ((i = ${#lines[@]} - 1; i > 0; i--)); do
        IFS=$'\t' read -r kind target bytes <<< "${lines[i]}"
        bytes=$(base64 -d <<< "$bytes" 2> /dev/null && echo .) || bytes=
        restore "$kind" "$target" "$bytes"
        if [ "$error" ]; then left=("${lines[i]}" "${left[@]}"); fi
    done
    if [ ${#left[@]} = 0 ]; then
        rm "$undo_file"
    else
        replace_undo_file "${lines[0]}" "${left[@]}"
    fi
}

# restore KIND TARGET BYTES: put them back, without the dot behind them; `error` says why not
restore() {
    local old='' now
    error=
    if ! is_line "$@"; then
        error="expected a line that apply wrote"
    elif [ "$1" = file ] && ! is_kernel_file "$2"; then
        error="expected an existing file below /proc/sys, /proc/irq or /sys, and no link"
    fi
    if [ "$error" ]; then
        report "$2" "" "" "$error"
        return
    fi
    set -- "$1" "$2" "${3%.}"
    if [ "$1" = ethtool ]; then
        error=$(set_interface "$2" "$3" 2>&1) && error=
        # Some releases call it a failure if there is nothing to do.
        if [[ $error == *unmodified* ]]; then error=; fi
    else
        if value "$2"; then old=$REPLY; fi
        now=$(cat "$root$2" 2>&1 && echo .) || true
        if [ "$now" = "$3." ]; then return; fi
        # A file that offers choices shows them all and takes one: "always [madvise] never".
        error=$(write_file "$2" "$3" 2>&1) || true
        if [ "$error" ] && [[ $3 =~ \[([a-z]+)\] ]]; then
            error=$(write_file "$2" "${BASH_REMATCH[1]}" 2>&1) || true
        fi
        now=$(cat "$root$2" 2>&1 && echo .) || true
        if [ -z "$error" ] && [ "$now" != "$3." ]; then error="reads ${now%.} now"; fi
    fi
    report "$2" "$old" "${3%$'\n'}" "$error"
}
