chgrp lanewatch /etc/lanewatch && chmod 0750 /etc/lanewatch
if [ "$1" -eq 1 ] && [ -x /usr/bin/systemctl ]; then
    systemctl --no-reload preset lanewatch.service >/dev/null 2>&1 || :
fi
[ ! -d /run/systemd/system ] || systemctl daemon-reload >/dev/null 2>&1 || :
