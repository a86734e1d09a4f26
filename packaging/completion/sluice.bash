# Completion of sluice's commands, options and `name,key=value` lists for bash.

_sluice_keys() {
  # The keys that the list behind an option takes.
  case $1 in
    --vm) echo "socket= mode= queues= mac= mtu= rss= packed= offload= socket-mode= socket-group=" ;;
    --tap) echo "ifname= fd= queues= napi= netns= persist= bridge= mtu= mac=" ;;
    --macvtap) echo "ifname= queues= netns=" ;;
    --xdp) echo "object= program=" ;;
    --nic) echo "socket= mode= queues= ring-size= packed= tx= offload=" ;;
  esac
}

# The values of a key, or of an option of the same name.
_sluice_values() {
  case $1 in
    mode) echo "server client" ;;
    napi) echo "auto on off" ;;
    tx) echo "napi inline" ;;
    xdp-unverified) echo "refuse interpret" ;;
    proto) echo "udp tcp" ;;
    offload | packed | persist | rss) echo "on off" ;;
    batch) echo "1 8 16 32 64" ;;
    ifname | bridge) ls /sys/class/net 2>/dev/null ;;
    netns) ls /run/netns 2>/dev/null ;;
  esac
}

# Completes the part of a list behind its last comma. $1: the option, $2: the list so far.
_sluice_list() {
  local head=${2%,*} last=${2##*,} key
  [[ $2 == *,* ]] || return
  if [[ $last == socket=* || $last == object=* ]]; then
    key=${last%%=*}
    mapfile -t COMPREPLY < <(compgen -f -P "$head,$key=" -- "${last#*=}")
  elif [[ $last == *=* ]]; then
    key=${last%%=*}
    mapfile -t COMPREPLY < <(compgen -P "$head,$key=" -W "$(_sluice_values "$key")" -- "${last#*=}")
  else
    mapfile -t COMPREPLY < <(compgen -P "$head," -W "$(_sluice_keys "$1")" -- "$last")
  fi
  compopt -o nospace
}

# The names of the ports given so far.
_sluice_ports() {
  local i
  for ((i = 1; i < ${#SLUICE_WORDS[@]} - 1; i++)); do
    case ${SLUICE_WORDS[i]} in
      --vm | --tap | --macvtap | --nic | --null) echo "${SLUICE_WORDS[i + 1]%%,*}" ;;
    esac
  done
}

_sluice_connect() {
  local current=$1
  if [[ $current == *:* ]]; then
    mapfile -t COMPREPLY < <(compgen -P "${current%%:*}:" -W "$(_sluice_ports)" -- "${current#*:}")
  else
    mapfile -t COMPREPLY < <(compgen -S : -W "$(_sluice_ports)" -- "$current")
    compopt -o nospace
  fi
}

# bash splits words at = and : ; lists have to be seen whole.
_sluice_words() {
  local line=${COMP_LINE:0:COMP_POINT}
  read -r -a SLUICE_WORDS <<<"$line"
  if [[ $line == *[[:space:]] ]]; then
    SLUICE_WORDS+=("")
  fi
}

# What bash takes as the current word begins behind the last = or : of ours.
_sluice_trim() {
  local current=$1 i rest
  rest=${current%"${current##*[=:]}"}
  [[ -n $rest ]] || return
  for i in "${!COMPREPLY[@]}"; do
    COMPREPLY[i]=${COMPREPLY[i]#"$rest"}
  done
}

_sluice() {
  local SLUICE_WORDS current previous command
  COMPREPLY=()
  _sluice_words
  current=${SLUICE_WORDS[-1]}
  previous=${SLUICE_WORDS[-2]}
  command=${SLUICE_WORDS[1]}
  if ((${#SLUICE_WORDS[@]} == 2)); then
    mapfile -t COMPREPLY < <(compgen -W "run guest pktgen tap stats ports xdp bench --help --version" -- "$current")
    return
  fi
  case $command$previous in
    *--vm | *--tap | *--macvtap | *--nic | *--xdp) _sluice_list "$previous" "$current" ;;
    *--connect) _sluice_connect "$current" ;;
    *--config | *--control | *--socket | *--report)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      ;;
    *--help-qemu) mapfile -t COMPREPLY < <(compgen -W "$(_sluice_ports)" -- "$current") ;;
    pktgen--mode)
      mapfile -t COMPREPLY < <(compgen -W "txonly rxonly echo reflect latency" -- "$current")
      ;;
    pktgen--socket-mode) mapfile -t COMPREPLY < <(compgen -W "client server" -- "$current") ;;
    # These take no value.
    *--hugepages | *--verbose | *--packed | *--verify | *--json | *--watch | *--list | *--help)
      _sluice_option "$command" "$current"
      ;;
    *--?*) mapfile -t COMPREPLY < <(compgen -W "$(_sluice_values "${previous#--}")" -- "$current") ;;
    *) _sluice_option "$command" "$current" ;;
  esac
  _sluice_trim "$current"
}

_sluice_option() {
  local words=""
  case $1 in
    run)
      words="--config --vm --tap --macvtap --nic --null --connect --xdp --xdp-unverified --batch --poll-us --workers --cpus
             --control --hugepages --verbose --help-qemu --help"
      ;;
    guest)
      words="--socket --ifname --netns --mac --mode --queues --ring-size --packed --tx --offload
             --poll-us --cpus --control --verbose --help"
      ;;
    pktgen)
      words="--socket --socket-mode --mode --size --burst --flows --rate --seconds --count --proto
             --window --wait --verify --src-mac --dst-mac --packed --tx --queues --ring-size --cpu
             --irq-cpu --poll-us --json --help"
      ;;
    xdp)
      words="attach replace detach list map --json --verbose --control --help"
      if [[ ${SLUICE_WORDS[2]} == map ]]; then words="dump update delete key value any noexist exist"; fi
      ;;
    bench) words="--list --rounds --seconds --json --report --help s4-napi-tx s2-batch xdp-run rings" ;;
    stats) words="--control --json --watch --help" ;;
    ports) words="--control --json --help" ;;
    tap)
      if [[ $2 == *,* ]]; then
        _sluice_list --tap "$2"
        return
      fi
      words="-- --help"
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$2")
}

complete -F _sluice sluice
