//! The CUDA driver, as far as memory is concerned: loaded when it is asked for, never linked. Names, types and numbers are those of the
//! CUDA Driver API; names that end in `_v2` are those that its header gives programs.

use libc::{c_char, c_int, c_uint, c_void, size_t};
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{Mutex, OnceLock, PoisonError};

const LIBRARY: &CStr = c"libcuda.so.1";

// CUpointer_attribute.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const SYNC_MEMOPS: c_int = 6;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
/// CUresult CUDA_ERROR_INVALID_HANDLE.
const INVALID_HANDLE: c_int = 400;
// CUmemorytype.
const TYPE_DEVICE: c_uint = 2;
/// CU_STREAM_NON_BLOCKING: work of the program's that runs for long does not hold up a copy, nor a copy that work.
const NON_BLOCKING: c_uint = 1;
/// CU_STREAM_CAPTURE_MODE_RELAXED: a program that captures a graph meanwhile is none of our business.
const RELAXED: c_uint = 2;

type Context = *mut c_void;
type Stream = *mut c_void;

/// Why a call failed: the function, the driver's number of the error, and its name.
#[derive(Clone, Debug)]
pub struct CudaError {
    call: &'static str,
    code: c_int,
    name: String,
}

impl std::fmt::Display for CudaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.call, self.name)
    }
}

type Called<T> = Result<T, CudaError>;

/// The driver's functions.
#[allow(non_snake_case)] // their own names
pub struct Cuda {
    cuInit: unsafe extern "C" fn(c_uint) -> c_int,
    cuDeviceGetCount: unsafe extern "C" fn(*mut c_int) -> c_int,
    cuGetErrorName: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
    cuPointerGetAttribute: unsafe extern "C" fn(*mut c_void, c_int, u64) -> c_int,
    cuPointerSetAttribute: unsafe extern "C" fn(*const c_void, c_int, u64) -> c_int,
    cuDevicePrimaryCtxRetain: unsafe extern "C" fn(*mut Context, c_int) -> c_int,
    cuCtxPushCurrent: unsafe extern "C" fn(Context) -> c_int,
    cuCtxPopCurrent: unsafe extern "C" fn(*mut Context) -> c_int,
    cuStreamCreate: unsafe extern "C" fn(*mut Stream, c_uint) -> c_int,
    cuStreamSynchronize: unsafe extern "C" fn(Stream) -> c_int,
    cuMemcpyDtoHAsync: unsafe extern "C" fn(*mut c_void, u64, size_t, Stream) -> c_int,
    cuMemcpyHtoDAsync: unsafe extern "C" fn(u64, *const c_void, size_t, Stream) -> c_int,
    cuMemcpyDtoDAsync: unsafe extern "C" fn(u64, u64, size_t, Stream) -> c_int,
    cuThreadExchangeStreamCaptureMode: unsafe extern "C" fn(*mut c_uint) -> c_int,
    /// A stream of ours for each context, and contexts that we have retained for devices; by their addresses.
    streams: Mutex<HashMap<usize, usize>>,
    retained: Mutex<HashMap<c_int, usize>>,
}

/// Where the bytes of a copy are.
#[derive(Clone, Copy)]
pub enum At {
    Host(u64),
    Device(u64),
}

/// The driver, loaded now if it was not.
pub fn open() -> Result<&'static Cuda, String> {
    find(true)
}

/// The driver, if this process has it already: without it no memory is a GPU's.
pub fn loaded() -> Result<&'static Cuda, String> {
    find(false)
}

fn find(load: bool) -> Result<&'static Cuda, String> {
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    if let Some(cuda) = CUDA.get() {
        return Ok(cuda);
    }
    let flags = libc::RTLD_NOW | if load { 0 } else { libc::RTLD_NOLOAD };
    // SAFETY: a name that ends with a zero. The library stays: its initialisers are those of the installed driver.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), flags) };
    if library.is_null() {
        return Err(match load {
            true => format!("libcuda.so.1 not found ({})", loader_says()),
            false => "libcuda.so.1 is not loaded".to_owned(),
        });
    }
    let cuda = Cuda::of(library)?;
    Ok(CUDA.get_or_init(|| cuda))
}

/// What the loader had to say of its last failure in this thread.
fn loader_says() -> String {
    // SAFETY: a text of this thread's that stays until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Cuda {
    #[allow(clippy::missing_transmute_annotations)] // the fields say of what type
    fn of(library: *mut c_void) -> Result<Cuda, String> {
        let find = |name: &CStr| {
            // SAFETY: a live library, and a name that ends with a zero.
            let at = unsafe { libc::dlsym(library, name.as_ptr()) };
            if at.is_null() {
                let name = name.to_string_lossy();
                return Err(format!("libcuda.so.1 has no {name}: a driver for CUDA 10.1 or newer is needed"));
            }
            Ok(at)
        };
        macro_rules! function {
            ($name:expr) => {
                // SAFETY: of that type by the reference of the driver's interface.
                unsafe { std::mem::transmute::<*mut c_void, _>(find($name)?) }
            };
        }
        Ok(Cuda {
            cuInit: function!(c"cuInit"),
            cuDeviceGetCount: function!(c"cuDeviceGetCount"),
            cuGetErrorName: function!(c"cuGetErrorName"),
            cuPointerGetAttribute: function!(c"cuPointerGetAttribute"),
            cuPointerSetAttribute: function!(c"cuPointerSetAttribute"),
            cuDevicePrimaryCtxRetain: function!(c"cuDevicePrimaryCtxRetain"),
            cuCtxPushCurrent: function!(c"cuCtxPushCurrent_v2"),
            cuCtxPopCurrent: function!(c"cuCtxPopCurrent_v2"),
            cuStreamCreate: function!(c"cuStreamCreate"),
            cuStreamSynchronize: function!(c"cuStreamSynchronize"),
            cuMemcpyDtoHAsync: function!(c"cuMemcpyDtoHAsync_v2"),
            cuMemcpyHtoDAsync: function!(c"cuMemcpyHtoDAsync_v2"),
            cuMemcpyDtoDAsync: function!(c"cuMemcpyDtoDAsync_v2"),
            cuThreadExchangeStreamCaptureMode: function!(c"cuThreadExchangeStreamCaptureMode"),
            streams: Mutex::default(),
            retained: Mutex::default(),
        })
    }

    fn called(&self, call: &'static str, result: c_int) -> Called<()> {
        if result == 0 {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: `name` can be written; what is written is a text of the library's.
        let known = unsafe { (self.cuGetErrorName)(result, &mut name) } == 0 && !name.is_null();
        let name = match known {
            // SAFETY: as above.
            true => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
            false => format!("error {result}"),
        };
        Err(CudaError { call, code: result, name })
    }

    /// How many devices there are.
    pub fn devices(&self) -> Called<c_int> {
        let mut count = 0;
        // SAFETY: no pointers, then one that can be written.
        unsafe {
            self.called("cuInit", (self.cuInit)(0))?;
            self.called("cuDeviceGetCount", (self.cuDeviceGetCount)(&mut count))?;
        }
        Ok(count)
    }

    fn attribute<T>(&self, attribute: c_int, addr: u64, mut value: T) -> Called<T> {
        // SAFETY: `value` is of the attribute's type, says each caller.
        let result = unsafe { (self.cuPointerGetAttribute)((&raw mut value).cast(), attribute, addr) };
        self.called("cuPointerGetAttribute", result).map(|()| value)
    }

    /// Whether the processor must not touch the memory at `addr`. Managed memory, and the host's that the driver has pinned, it may. An
    /// error: the driver does not know the address.
    pub fn is_device_only(&self, addr: u64) -> Called<bool> {
        let of_device = self.attribute::<c_uint>(MEMORY_TYPE, addr, 0)? == TYPE_DEVICE;
        Ok(of_device && self.attribute::<c_uint>(IS_MANAGED, addr, 0).unwrap_or(0) == 0)
    }

    /// From now on a copy that the program has been told is done, is done for others, too: ours run beside the program's.
    pub fn keep_in_step(&self, addr: u64) {
        let on: c_uint = 1;
        // SAFETY: a value of the attribute's type. Memory that does not know the attribute stays as it is.
        let _ = unsafe { (self.cuPointerSetAttribute)((&raw const on).cast(), SYNC_MEMOPS, addr) };
    }

    /// The context of the memory at `addr`: the program's, or, of memory that belongs to none, its device's primary one.
    fn context_of(&self, addr: u64) -> Called<Context> {
        let context = self.attribute::<Context>(CONTEXT, addr, std::ptr::null_mut())?;
        if !context.is_null() {
            return Ok(context);
        }
        let device = self.attribute::<c_int>(DEVICE_ORDINAL, addr, 0)?;
        let mut retained = self.retained.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&context) = retained.get(&device) {
            return Ok(context as Context);
        }
        let mut context: Context = std::ptr::null_mut();
        // SAFETY: `context` can be written.
        let result = unsafe { (self.cuDevicePrimaryCtxRetain)(&mut context, device) };
        self.called("cuDevicePrimaryCtxRetain", result)?;
        retained.insert(device, context as usize);
        Ok(context)
    }

    /// Copies, and returns when that is done. The driver checks a device's memory; a host's is what [`super::memory`] works with: a
    /// buffer of ours, or registered.
    pub fn copy(&self, from: At, to: At, len: usize) -> Called<()> {
        let ((At::Device(addr), _) | (_, At::Device(addr))) = (from, to) else { return Ok(()) };
        let context = self.context_of(addr)?;
        // SAFETY: a live context, and afterwards what was pushed; `mode` can be written. The host's memory is there by the promise of
        // `HostMemory::new`.
        unsafe {
            self.called("cuCtxPushCurrent", (self.cuCtxPushCurrent)(context))?;
            let mut mode = RELAXED;
            let _ = (self.cuThreadExchangeStreamCaptureMode)(&mut mode);
            let mut copied = self.copy_in(context, from, to, len);
            if matches!(&copied, Err(error) if error.code == INVALID_HANDLE) {
                // A context that has ended took our stream along, and this one has its address.
                self.streams.lock().unwrap_or_else(PoisonError::into_inner).remove(&(context as usize));
                copied = self.copy_in(context, from, to, len);
            }
            let _ = (self.cuThreadExchangeStreamCaptureMode)(&mut mode);
            let mut popped = std::ptr::null_mut();
            let _ = (self.cuCtxPopCurrent)(&mut popped);
            copied
        }
    }

    /// # Safety
    /// The host's memory is good for `len` bytes, and the context is current.
    unsafe fn copy_in(&self, context: Context, from: At, to: At, len: usize) -> Called<()> {
        let stream = self.stream_of(context)?;
        // SAFETY: as the caller says, and the stream is of this context.
        unsafe {
            match (from, to) {
                (At::Device(from), At::Host(to)) => {
                    let result = (self.cuMemcpyDtoHAsync)(to as *mut c_void, from, len, stream);
                    self.called("cuMemcpyDtoHAsync", result)?;
                }
                (At::Host(from), At::Device(to)) => {
                    let result = (self.cuMemcpyHtoDAsync)(to, from as *const c_void, len, stream);
                    self.called("cuMemcpyHtoDAsync", result)?;
                }
                (At::Device(from), At::Device(to)) => {
                    self.called("cuMemcpyDtoDAsync", (self.cuMemcpyDtoDAsync)(to, from, len, stream))?;
                }
                (At::Host(_), At::Host(_)) => {}
            }
            self.called("cuStreamSynchronize", (self.cuStreamSynchronize)(stream))
        }
    }

    fn stream_of(&self, context: Context) -> Called<Stream> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&stream) = streams.get(&(context as usize)) {
            return Ok(stream as Stream);
        }
        let mut stream: Stream = std::ptr::null_mut();
        // SAFETY: `stream` can be written; the context is current, says the caller.
        self.called("cuStreamCreate", unsafe { (self.cuStreamCreate)(&mut stream, NON_BLOCKING) })?;
        streams.insert(context as usize, stream as usize);
        Ok(stream)
    }
}
