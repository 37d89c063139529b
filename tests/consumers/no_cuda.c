/* Stands in for libcuda.so.1 and libcudart.so.12 where there is no GPU: every call fails. */
#include <stddef.h>

enum { NO_DEVICE = 100 }; /* CUDA_ERROR_NO_DEVICE, cudaErrorNoDevice */

int cuCtxSetCurrent(void *context)
{
    (void)context;
    return NO_DEVICE;
}

int cuDeviceGetPCIBusId(char *id, int length, int device)
{
    (void)id, (void)length, (void)device;
    return NO_DEVICE;
}

int cuPointerGetAttributes(unsigned count, void *attributes, void **data, unsigned long long pointer)
{
    (void)count, (void)attributes, (void)data, (void)pointer;
    return NO_DEVICE;
}

int cudaSetDevice(int device)
{
    (void)device;
    return NO_DEVICE;
}

const char *cudaGetErrorString(int error)
{
    (void)error;
    return "no CUDA on this machine";
}
