if [ "$1" -eq 0 ] && [ -x /usr/bin/systemctl ]; then
    systemctl --no-reload disable --now lanewatch.socket lanewatch.service >/dev/null 2>&1 || :
fi
