#!/bin/sh
# Programs that tests start and pip cannot bring: tmux for what a terminal shows, bubblewrap for the shell tool's sandbox,
# Chromium for the flight deck (only where Node can build its page), strace for power cuts on the simulated disk.
set -eu
missing=""
command -v tmux >/dev/null 2>&1 || missing="$missing tmux"
if [ "$(uname)" = Linux ]; then
    command -v bwrap >/dev/null 2>&1 || missing="$missing bubblewrap"
    command -v strace >/dev/null 2>&1 || missing="$missing strace"
    if command -v npm >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; then
        command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
    fi
fi
[ -n "$missing" ] || exit 0
echo "installing$missing"
run=""
[ "$(id -u)" = 0 ] || run="sudo"
if command -v apt-get >/dev/null 2>&1; then
    $run apt-get update -qq && $run apt-get install -y -qq --no-install-recommends $missing
elif command -v brew >/dev/null 2>&1; then
    brew install $missing
else
    echo "please install$missing" >&2
    exit 1
fi
