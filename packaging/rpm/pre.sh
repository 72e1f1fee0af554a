getent group lanewatch >/dev/null || groupadd -r lanewatch
getent passwd lanewatch >/dev/null ||
    useradd -r -g lanewatch -d /var/lib/lanewatch -s /sbin/nologin -c "lanewatch agent" lanewatch
exit 0
