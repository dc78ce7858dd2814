"""Folders in which no other user can change or replace anything, checked as sshd does with `StrictModes`.

Rule: each folder and link on the way from / belongs to this user or to root, and neither group nor others may write to
a folder. On the way, and not at its end, may be a folder with the sticky bit, such as /tmp, where only its owner can
replace a folder, and one that a user's own group may write to, as some distributions make all folders. Root is no
exception: root refuses the folders of other users. In a user namespace without the machine's root, as in rootless
containers, the folders on the way to a home show no owner; they are taken for root's.

Guarantees: what has passed cannot be changed by another user afterwards, so a check is needed once in a process.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from .errors import PathRefused

if TYPE_CHECKING:
    from .place import Place

#: Links that the kernel follows in one path.
_MOST_LINKS: Final = 40
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH


def check_folders(place: Place) -> None:
    """Raise PathRefused if another user can change the home, the namespace's folder or the embedded server's."""
    check_folder(place.home)
    for folder in (place.folder, place.server_folder) if place.url is None else (place.folder,):
        try:
            status = os.lstat(folder)
        except OSError:
            continue
        if stat.S_ISLNK(status.st_mode):
            check_folder(folder)
        else:
            _check_folder(folder, status, folder, sticky=False)
        check_contents(folder)


def check_folder(path: str, sticky: bool = False) -> None:
    """Raise PathRefused if another user can change the folder `path`, or replace it.

    With `sticky`, `path` itself may be what only folders on the way may be otherwise. Links are followed. The check ends
    without an error at a name that is missing or cannot be reached.
    """
    path = os.path.join(os.getcwd(), path)
    names = path.split("/")[::-1]
    at, links = "/", 0
    try:
        status = os.lstat(at)
        _check_folder(at, status, path, sticky=True)
        while names:
            name = names.pop()
            if name in ("", "."):
                continue
            here = os.path.join(at, name) if name != ".." else os.path.dirname(at)
            status = os.lstat(here)
            if stat.S_ISLNK(status.st_mode):
                _check_owner(here, status, path)
                links += 1
                if links > _MOST_LINKS:
                    return
                target = os.readlink(here)
                at = "/" if target.startswith("/") else at
                names += target.split("/")[::-1]
                status = os.lstat(at)
                continue
            _check_folder(here, status, path, sticky=True)
            at = here
    except OSError:
        # Not there, or not to be reached: its user gets the same error, or makes it in a folder that has passed.
        return
    if status.st_mode & _WRITABLE and not sticky:
        raise _writable(at, status, path)


def check_contents(folder: str) -> None:
    """Raise PathRefused if another user owns something in a folder, or can write to it; see `check_folder` for `folder`.

    In a folder that only its owner can enter, modes do not matter: servers make files with the umask.
    """
    try:
        closed = not os.stat(folder).st_mode & (stat.S_IXGRP | stat.S_IXOTH)
        with os.scandir(folder) as items:
            for item in items:
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                _check_owner(item.path, status, item.path)
                if status.st_mode & _WRITABLE and not closed and not stat.S_ISLNK(status.st_mode):
                    raise _writable(item.path, status, item.path)
    except OSError:
        return


def _check_folder(here: str, status: os.stat_result, path: str, sticky: bool) -> None:
    _check_owner(here, status, path)
    if status.st_mode & _WRITABLE and not (sticky and (status.st_mode & stat.S_ISVTX or _is_for_its_owner(status))):
        raise _writable(here, status, path)


def _is_for_its_owner(status: os.stat_result) -> bool:
    """Return whether only a group may write to a folder that has no member but the folder's owner."""
    if status.st_mode & stat.S_IWOTH or status.st_uid == 0:
        return False
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    # The group that is made with an account has its name; to find all accounts of any other would take too long.
    return owner.pw_gid == status.st_gid and owner.pw_name == group.gr_name and set(group.gr_mem) <= {owner.pw_name}


def _check_owner(here: str, status: os.stat_result, path: str) -> None:
    own = os.geteuid()
    on_the_way = os.path.normpath(path) != here
    if status.st_uid in (own, 0) or (on_the_way and _is_unmapped(status.st_uid)):
        return
    reason = f"it belongs to user {status.st_uid}, not to {f'user {own} or root' if own else 'root'}"
    if not on_the_way:
        mend = f"look at what it holds and run: chown -R {own} {_quoted(here)}"
    else:
        # Perhaps the whole home of a user: no command may be run on that without a thought.
        reason, mend = f"{reason}, and leads to {path}", "name another one below folders of your own (POOLRT_HOME)"
    raise PathRefused(here, f"{reason}; {mend}")


def _is_unmapped(uid: int) -> bool:
    """Return whether `uid` is the number of all users that this process's user namespace does not map, root among them."""
    try:
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            if uid != int(file.read()):
                return False
        with open("/proc/self/uid_map", "rb") as file:
            outside = [int(line.split()[1]) for line in file]
    except (OSError, ValueError):
        return False
    return bool(outside) and 0 not in outside


def _writable(here: str, status: os.stat_result, path: str) -> PathRefused:
    mode = stat.S_IMODE(status.st_mode)
    so = "" if os.path.normpath(path) == here else f", and so replace {path}"
    return PathRefused(
        here, f"its mode {mode:04o} lets group or others write to it{so}; run: chmod go-w {_quoted(here)}"
    )


def _quoted(path: str) -> str:
    from shlex import quote

    return quote(path)
