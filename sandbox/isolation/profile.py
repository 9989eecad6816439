"""Profiles: which layers a process gets, in which order they are put on, and what came of each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.sandbox.isolation import folders, identity, landlock, limits, namespaces, seccomp
from warpsmith.sandbox.isolation.policy import Policy, Profile, interpreter_paths

ALWAYS = ("no_new_privs", "limits", "landlock", "seccomp")
"""Layers without which a profile is `bare`."""
STRICT = ("user id", "namespaces")
"""What `strict` has beyond `user`."""

REMEDIES = {
    "landlock": "use Linux 5.13 or later with Landlock among its security modules",
    "seccomp": "use a kernel with seccomp filters on x86_64 or aarch64",
    "namespaces": "allow unprivileged user namespaces, or run as root outside of a container",
    "user id": "run as root, with the interpreter, the package, the cache and the problem where `nobody` can read them",
}
"""What to do for a layer that is missing."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What a process got: the name of the profile, and for each layer `on...` or `off: why`."""

    profile: Profile
    layers: dict[str, str]

    def document(self) -> dict[str, Any]:
        """As in the manifest."""
        return {"profile": self.profile, "layers": self.layers}


def is_on(layers: Mapping[str, str], name: str) -> bool:
    """Whether a layer holds."""
    return layers.get(name, "off").startswith("on")


def profile_of(layers: Mapping[str, str]) -> Profile:
    """The profile that these layers make."""
    if not all(is_on(layers, name) for name in ALWAYS):
        return "bare"
    return "strict" if all(is_on(layers, name) for name in STRICT) else "user"


def shortfall(wanted: Profile | None, found: Isolation) -> str | None:
    """Why a profile that was asked for is not there, with the remedy; None where it is."""
    if wanted is None or wanted == found.profile:
        return None
    needed = ALWAYS if wanted == "user" else (*ALWAYS, *STRICT)
    missing = [name for name in needed if not is_on(found.layers, name)]
    said = "; ".join(f"{name} is {found.layers.get(name, 'off')}" for name in missing)
    remedies = "; ".join(REMEDIES[name] for name in missing if name in REMEDIES)
    return f"the isolation profile `{wanted}` cannot be had here ({said}): {remedies}"


def settle(policy: Policy, *, wrapped: bool = False) -> tuple[Policy, dict[str, str]]:
    """Before the nursery imports anything: finds out whether runners can change their user, makes the folders that
    they write, points the environment at these, and enters namespaces (`wrapped`: bubblewrap has done so)."""
    interpreter_paths()
    if policy.profile == "bare":
        return folders.prepare(policy, None), {"namespaces": "off: not asked for", "user id": "off: not asked for"}
    if wrapped:
        found = {"namespaces": "on: pid, network, ipc, mount (bubblewrap)", "user id": "off: inside of bubblewrap"}
        return folders.prepare(policy, None), found
    user = _user_id(policy)
    policy = folders.prepare(policy, identity.unprivileged_user() if user.startswith("on") else None)
    return policy, {**namespaces.enter(policy.processes), "user id": user}


def confine_runner(policy: Policy, before: Mapping[str, str]) -> Isolation:
    """In a forked runner, before it has threads: puts on every layer. `before` is what `settle` gave."""
    layers = dict(before)
    read, devices = policy.readable(), policy.devices()
    layers["limits"] = limits.limit_runner(
        processes=policy.processes, others=_others(policy, layers), file_bytes=policy.file_bytes,
        open_files=policy.open_files,
    )  # fmt: skip
    if policy.profile == "bare":
        return Isolation("bare", layers)
    if is_on(layers, "user id"):
        identity.become(*identity.unprivileged_user())
        layers["capabilities"] = "on: none are left"
    else:
        layers["capabilities"] = _attempt(identity.drop_capabilities)
    layers["no_new_privs"] = _attempt(identity.no_new_privileges)
    layers["closed to others"] = identity.close_to_others(names_threads=policy.gpu)
    layers["landlock"] = _landlock(policy, read, devices)
    layers["seccomp"] = _attempt(lambda: seccomp.install(seccomp.RUNNER))
    return Isolation(profile_of(layers), layers)


def _others(policy: Policy, layers: Mapping[str, str]) -> int:
    """Room in the limit of processes for those that count with ours: other runners as `nobody`; all of an ordinary
    user's, unless a user namespace counts by itself. Root is not counted at all."""
    if is_on(layers, "user id"):
        return 3 * policy.processes
    if os.geteuid() == 0 or is_on(layers, "namespaces"):
        return 0
    return limits.tasks_of_this_user()


def confine_compiler(readable: Iterable[Path], *, memory_bytes: int, bare: bool) -> dict[str, str]:
    """In a compiler process that has loaded its library: puts on every layer and says what came of each."""
    layers = {"limits": limits.limit_compiler(memory_bytes=memory_bytes)}
    if not bare:
        layers["capabilities"] = _attempt(identity.drop_capabilities)
        layers["no_new_privs"] = _attempt(identity.no_new_privileges)
        layers["closed to others"] = identity.close_to_others(names_threads=False)
        layers["landlock"] = landlock_text(landlock.confine(read=readable))
        layers["seccomp"] = _attempt(lambda: seccomp.install(seccomp.COMPILER))
    return layers


_kept_open: list[int] = []
"""A rule of Landlock on a folder of /proc holds while the folder is open."""


def _landlock(policy: Policy, read: list[Path], devices: list[Path]) -> str:
    if policy.gpu:
        # CUDA writes the names of its threads there, and does not start without.
        _kept_open.append(os.open("/proc/self/task", os.O_PATH))
        devices = [*devices, Path("/proc/self/task")]
    version = landlock.confine(
        read=read, write=map(Path, (*policy.write, *policy.own)), devices=devices, drop=map(Path, policy.drop)
    )
    return landlock_text(version)


def landlock_text(version: int) -> str:
    """How a version of Landlock is told."""
    if version == 0:
        return "off: this kernel has no Landlock"
    lacking = [] if version >= landlock.NETWORK_ABI else ["TCP"]
    lacking += [] if version >= landlock.SCOPE_ABI else ["signals and abstract sockets"]
    return f"on: version {version}" + (f", degraded: it does not cover {', '.join(lacking)}" if lacking else "")


def _user_id(policy: Policy) -> str:
    if policy.profile == "user":
        return "off: not asked for"
    if os.geteuid() != 0:
        return "off: only root can change it"
    user, group = identity.unprivileged_user()
    nodes = [path for path in policy.devices() if re.fullmatch(r"nvidia(\d+|ctl|-uvm)", path.name)]
    given = [Path(os.__file__), Path(__file__), *map(Path, policy.read), *map(Path, policy.folders)]
    # What a folder is made in must be in reach; the folder itself is given to the user later.
    given += [Path(path).parent for path in policy.own] + ([Path(policy.cache)] if policy.cache else [])
    read = [path for path in given if path.exists()]
    missing = identity.unreachable(user, group, read, [*map(Path, policy.write), *nodes])
    if missing is not None:
        return f"off: nobody ({user}) has no access to {missing}"
    return f"on: nobody ({user})"


def _attempt(action: Callable[[], None]) -> str:
    try:
        action()
    except OSError as error:
        return f"off: {error.strerror or error}"
    return "on"
