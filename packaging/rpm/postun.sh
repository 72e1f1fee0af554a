# RPM knows no purge: /var/lib/lanewatch, changed files of /etc and the user stay.
if [ "$1" -ge 1 ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload >/dev/null 2>&1 || :
    systemctl try-restart lanewatch.service >/dev/null 2>&1 || :
fi
exit 0
