//! Makes congestion controls ("schemes") usable that the kernel may lack.
//!
//! [`Schemes::provide`] looks for each scheme in this order: the kernel has it, or loads its module by
//! itself; `modprobe` loads its module; Pathcast brings it as BPF (`struct_ops`), with the feature
//! `bpf`, for [`BPF_SCHEMES`]. A BPF scheme has a unique name in the kernel, so that simultaneous runs do
//! not collide. It exists as long as the [`Schemes`] that provided it: the kernel removes it when they are
//! dropped, and when the process ends, however it ends. Connections that use it keep it until they close.
//!
//! ```
//! use pathcast_kernel_schemes::Schemes;
//!
//! let schemes = Schemes::provide(["cubic"])?;
//! assert_eq!(schemes.kernel_name("cubic"), "cubic");
//! assert!(Schemes::provide(["../../cubic"]).is_err());
//! # Ok::<(), pathcast_kernel_schemes::SchemeError>(())
//! ```

#[cfg(all(feature = "bpf", target_os = "linux"))]
mod bpf;
mod error;
mod kernel;
mod module;
mod names;
mod schemes;

pub use error::SchemeError;
pub use kernel::available;
pub use names::{BPF_SCHEMES, check_name};
pub use schemes::{Schemes, try_bpf};
