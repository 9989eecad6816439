//% macro cluster_peers()
static __device__ __forceinline__ unsigned int cluster_rank() {
    unsigned int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
static __device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
static __device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Reads what lies `distance` bytes from the block's own copy: the same variable of another block of the cluster.
struct ReadPeer {
    unsigned int distance;
    template <typename T> __device__ __forceinline__ T operator()(const T* own) const {
        const unsigned int address = (unsigned int)__cvta_generic_to_shared(own) + distance;
        if constexpr (sizeof(T) == 4) {
            unsigned int word;
            asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
            return reinterpret_cast<const T&>(word);
        } else {
            static_assert(sizeof(T) == 8, "partials consist of scalars of 4 or 8 bytes");
            unsigned long long words;
            asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(words) : "r"(address) : "memory");
            return reinterpret_cast<const T&>(words);
        }
    }
};
template <class P> static __device__ __forceinline__ P peer_copy(const P* local, unsigned int rank) {
    const unsigned int address = (unsigned int)__cvta_generic_to_shared(local);
    unsigned int remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return fetched(local, ReadPeer{remote - address});
}
// The result of a row, in every thread of every block of its cluster.
template <class P> static __device__ __forceinline__ P reduce_row(P p, P* scratch, P* slot) {
    p = reduce_team(p, scratch);
    if constexpr (CLUSTER > 1) {
        if (threadIdx.x == 0) *slot = p;
        cluster_arrive();
        cluster_wait();
        set_identity(p);
        const int lane = threadIdx.x % 32;
        if (lane < CLUSTER) p = peer_copy(slot, lane);
        p = reduce_lanes<CLUSTER>(p);
    }
    return p;
}
//% endmacro
