//% macro memory_peers()
// A block tells its partial to the others of its team word by word, each in one access with the turn it is of: who reads
// that turn has the word, without a fence or a second trip. A turn's words lie where those of two turns before did: a
// block tells a turn's only after it has heard all of the turn before, which nobody tells before having heard the one
// before that.
constexpr int WORDS = ${words};
constexpr int ROUNDS = ${sweeps | length};
static __device__ __forceinline__ unsigned long long* cells_of(unsigned long long* cells, int team, int round, int turn) {
    return cells + (long long)((team * ROUNDS + round) * 2 + turn % 2) * PEERS * WORDS;
}
struct ToWords {
    const unsigned char* from_;
    unsigned int* words;
    template <typename T> __device__ __forceinline__ T operator()(const T* from) const {
        static_assert(sizeof(T) == 4 || sizeof(T) == 8, "partials consist of scalars of 4 or 8 bytes");
        const int word = (int)(reinterpret_cast<const unsigned char*>(from) - from_) / 4;
        if constexpr (sizeof(T) == 4) {
            words[word] = reinterpret_cast<const unsigned int&>(*from);
        } else {
            const unsigned long long bits = reinterpret_cast<const unsigned long long&>(*from);
            words[word] = (unsigned int)bits;
            words[word + 1] = (unsigned int)(bits >> 32);
        }
        return *from;
    }
};
struct FromWords {
    const unsigned char* to_;
    const unsigned int* words;
    template <typename T> __device__ __forceinline__ T operator()(const T* to) const {
        const int word = (int)(reinterpret_cast<const unsigned char*>(to) - to_) / 4;
        if constexpr (sizeof(T) == 4) {
            return reinterpret_cast<const T&>(words[word]);
        } else {
            const unsigned long long bits = (unsigned long long)words[word + 1] << 32 | words[word];
            return reinterpret_cast<const T&>(bits);
        }
    }
};
template <class P> static __device__ __forceinline__ void tell(const P& p, unsigned long long* cells, unsigned int turn) {
    constexpr int COUNT = (int)sizeof(P) / 4;
    static_assert(COUNT <= WORDS, "the plan's scratch has room for every partial");
    unsigned int words[COUNT] = {};
    P copy;
    fetch(copy, &p, ToWords{reinterpret_cast<const unsigned char*>(&p), words});
#pragma unroll
    for (int word = 0; word < COUNT; ++word)
        *(volatile unsigned long long*)(cells + word) = (unsigned long long)turn << 32 | words[word];
}
template <class P> static __device__ __forceinline__ P hear(const unsigned long long* cells, unsigned int turn) {
    constexpr int COUNT = (int)sizeof(P) / 4;
    unsigned int words[COUNT];
    bool all;
    do {
        all = true;
#pragma unroll
        for (int word = 0; word < COUNT; ++word) {
            const unsigned long long cell = *(const volatile unsigned long long*)(cells + word);
            words[word] = (unsigned int)cell;
            all = all && (unsigned int)(cell >> 32) == turn;
        }
    } while (!all);
    P p;
    fetch(p, &p, FromWords{reinterpret_cast<const unsigned char*>(&p), words});
    return p;
}
// The result of a row, in every thread of every block of its team: partials in a fixed order.
template <class P>
static __device__ __forceinline__ P reduce_row(P p, P* scratch, unsigned long long* cells, int turn) {
    p = reduce_team(p, scratch);
    if constexpr (PEERS > 1) {
        const unsigned int told = (unsigned int)turn + 1;  // the plan clears the cells, so no turn is 0
        if (threadIdx.x == 0) tell(p, cells + (blockIdx.x % PEERS) * WORDS, told);
        set_identity(p);
        for (int peer = threadIdx.x; peer < PEERS; peer += THREADS) combine(p, hear<P>(cells + peer * WORDS, told));
        p = reduce_team(p, scratch + SCRATCH);
    }
    return p;
}
//% endmacro
