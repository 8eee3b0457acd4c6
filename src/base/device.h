/* Functions that processors and cards compute alike, bit for bit: compiled for both where the compiler makes code for cards. */
#ifndef LILY_BASE_DEVICE_H
#define LILY_BASE_DEVICE_H

#ifdef __CUDACC__
#define EVERYWHERE static inline __host__ __device__
#else
#define EVERYWHERE static inline
#endif

#endif
