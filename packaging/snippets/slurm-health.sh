#!/bin/bash
# Slurm's HealthCheckProgram, for nodes without NHC:
#
#   HealthCheckProgram=/usr/share/lanewatch/snippets/slurm-health.sh
#   HealthCheckInterval=300
#   HealthCheckNodeState=ANY
#
# While something critical holds the node is drained, with what it is as the reason. When nothing does any more, the node is resumed,
# but only if its reason is still the one that was given here: whoever drained it for another reason finds it drained.
# Unknown changes nothing. Slurm ends the program after 60 s, and wants 0 before a node registers: always 0.

program=${LANEWATCH:-/usr/bin/lanewatch}
node=${SLURMD_NODENAME:-$(hostname -s)}

answer=$(timeout 30 "$program" check --format nagios --sample 2s --timeout 8s)
status=$?
line=${answer%%$'\n'*}
line=${line%% |*}

state=$(scontrol show node "$node" --oneliner) || exit 0
reason=
[[ $state =~ \ Reason=(.*)$ ]] && reason=${BASH_REMATCH[1]}
drained=no
[[ $state =~ \ State=[A-Z+*]*DRAIN ]] && drained=yes

case $status in
2)
    [[ $drained == yes ]] || scontrol update nodename="$node" state=drain reason="lanewatch: $line"
    ;;
0 | 1)
    if [[ $drained == yes && $reason == "lanewatch: "* ]]; then
        scontrol update nodename="$node" state=resume
    fi
    ;;
esac
exit 0
