#!/bin/bash
# lab-names: name the NICs by the MAC addresses that machine.py gives: pf0, pf1, mgmt0
# (run it again after a hot-plug or a PCI rescan)
for n in /sys/class/net/*; do
  i=${n##*/}
  case $(cat "$n/address") in
    52:54:00:aa:*) new=pf0 ;;
    52:54:00:bb:*) new=pf1 ;;
    52:54:00:00:*) new=mgmt0 ;;
    *) continue ;;
  esac
  [ "$i" = $new ] || ip link set "$i" name $new
done
