"""A store whose process can die: from then on nothing it is given arrives, until another process takes over."""

from glidepath.errors import StoreError


class Frail:
    """Passes everything on to a real store; after `die()` writes get lost and leases stay as they are."""

    def __init__(self, store) -> None:
        self.store = store
        self.dead = False
        self.left = None
        self.leases = {}

    def __getattr__(self, name):
        return getattr(self.store, name)

    def die(self) -> None:
        """What is written from now on never arrives."""
        self.dead = True

    def die_after(self, commits: int) -> None:
        """Die when so many more commits are written."""
        self.left = commits

    async def revive(self) -> None:
        """Another process begins: the leases of the dead one are free."""
        self.dead, self.left = False, None
        leases, self.leases = self.leases, {}
        for lease in leases.values():
            await self.store.release(lease)

    async def claim(self, *args, **keywords):
        lease = await self.store.claim(*args, **keywords)
        self.leases[lease.session_id] = lease
        return lease

    def append(self, *args, **keywords):
        if self.left is not None:
            self.dead = self.dead or self.left <= 0
            self.left -= 1
        if self.dead:
            raise StoreError("the process is dead")
        return self.store.append(*args, **keywords)

    async def beat(self, *args, **keywords):
        return () if self.dead else await self.store.beat(*args, **keywords)

    async def release(self, lease):
        if not self.dead:
            self.leases.pop(lease.session_id, None)
            await self.store.release(lease)

    async def load(self, *args, **keywords):
        return await self.store.load(*args, **keywords)

    async def entries(self, prefix=""):
        return await self.store.entries(prefix)

    async def flag(self, session_id, reason):
        await self.store.flag(session_id, reason)

    async def cut(self, lease, head, hash_):
        await self.store.cut(lease, head, hash_)

    async def remove(self, session_id):
        await self.store.remove(session_id)

    async def close(self):
        await self.store.close()
