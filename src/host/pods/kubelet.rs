//! What the kubelet has given to pods: its PodResources API, gRPC over a Unix socket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;

use super::podresources::{ListPodResourcesRequest, ListPodResourcesResponse};
use crate::host::collector::{DeviceReader, ReadContext};
use crate::host::io::reason_of;
use crate::model::ids::PciAddress;
use crate::model::pods::{AllocatedDevice, Allocation, Allocations};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

/// How often the kubelet is asked; its limit is 100 calls a second for all clients together.
const INTERVAL: Duration = Duration::from_secs(30);

/// How long a call may take; less than the collector's deadline.
const PATIENCE: Duration = Duration::from_secs(4);

/// How long an answer counts while the kubelet does not respond, as during its restart.
const KEPT: Duration = Duration::from_secs(2 * 60);

/// Longest answer that is taken: what other clients of the API allow.
const LONGEST: usize = 16 << 20;

/// The longest name of a resource, pod or device that is kept.
const LONGEST_NAME: usize = 256;

/// As many devices as are kept.
const MOST: usize = 16 * 1024;

/// The reader.
pub(super) struct KubeletReader {
    socket: PathBuf,
    next: Option<BootTime>,
    answered: Option<(BootTime, Arc<Allocations>)>,
}

impl KubeletReader {
    /// Of the kubelet behind this socket.
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket, next: None, answered: None }
    }
}

impl DeviceReader for KubeletReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        if self.next.is_none_or(|next| cx.now >= next) {
            self.next = Some(cx.now.after(INTERVAL));
            match list(&self.socket) {
                Ok(answer) => self.answered = Some((cx.now, Arc::new(allocations(&answer)))),
                Err(error) => {
                    tracing::debug!(%error, socket = %self.socket.display(), "the kubelet was not read");
                    // The socket was configured: that it is not there is worth a word.
                    cx.fault(&self.socket, error.reason());
                }
            }
        }
        let kept = self.answered.as_ref().filter(|(at, _)| cx.now.since(*at) <= KEPT);
        kept.map(|(_, allocations)| Arc::<Allocations>::clone(allocations) as Fact).into_iter().collect()
    }
}

/// Why the kubelet was not read.
#[derive(Debug, thiserror::Error)]
enum KubeletError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Timeout,
    #[error("HTTP/2: {0}")]
    Http(#[from] hyper::Error),
    #[error("HTTP status {0}")]
    Status(StatusCode),
    /// A status of gRPC (`google.rpc.Code`) that is not OK.
    #[error("gRPC status {0}")]
    Grpc(u32),
    #[error("the answer is longer than {LONGEST} bytes")]
    TooLong,
    #[error("the answer is malformed")]
    Malformed,
}

impl KubeletError {
    fn reason(&self) -> ReadError {
        match self {
            Self::Connect(error) => reason_of(error).unwrap_or(ReadError::Gone),
            Self::Timeout => ReadError::Timeout,
            // Unimplemented: an old kubelet.
            Self::Grpc(12) => ReadError::NotSupported,
            Self::Grpc(7 | 16) => ReadError::Permission,
            Self::Http(_) | Self::Status(_) | Self::Grpc(_) => ReadError::Io,
            Self::TooLong | Self::Malformed => ReadError::Malformed,
        }
    }
}

/// Asks for every pod, on a connection of its own: the kubelet replaces its socket when it starts.
fn list(socket: &Path) -> Result<ListPodResourcesResponse, KubeletError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(KubeletError::Connect)?;
    let call = call(socket, "/v1.PodResourcesLister/List", &ListPodResourcesRequest {});
    runtime.block_on(async { tokio::time::timeout(PATIENCE, call).await }).map_err(|_| KubeletError::Timeout)?
}

async fn call<A: Message + Default>(socket: &Path, method: &str, question: &impl Message) -> Result<A, KubeletError> {
    let stream = UnixStream::connect(socket).await.map_err(KubeletError::Connect)?;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(framed(question)))
        .map_err(|_| KubeletError::Malformed)?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(KubeletError::Status(response.status()));
    }
    // An error without a message has its status in the headers.
    status(response.headers())?;
    let (mut body, mut content) = (response.into_body(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        if let Some(trailers) = frame.trailers_ref() {
            status(trailers)?;
        } else if let Some(data) = frame.data_ref() {
            if content.len() + data.len() > LONGEST + HEADER {
                return Err(KubeletError::TooLong);
            }
            content.put_slice(data);
        }
    }
    connection.abort();
    unframed(content.freeze())
}

/// A flag and a length come before each message.
const HEADER: usize = 5;

fn framed(message: &impl Message) -> Bytes {
    let bytes = message.encode_to_vec();
    let mut framed = BytesMut::with_capacity(HEADER + bytes.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    framed.put_slice(&bytes);
    framed.freeze()
}

fn unframed<A: Message + Default>(mut content: Bytes) -> Result<A, KubeletError> {
    if content.len() < HEADER {
        return Err(KubeletError::Malformed);
    }
    let (compressed, length) = (content.get_u8(), content.get_u32());
    let whole = usize::try_from(length).is_ok_and(|length| length == content.len());
    // No compression was offered.
    if compressed != 0 || !whole {
        return Err(KubeletError::Malformed);
    }
    A::decode(content).map_err(|_| KubeletError::Malformed)
}

fn status(headers: &HeaderMap) -> Result<(), KubeletError> {
    match headers.get("grpc-status").map(|value| value.to_str().ok().and_then(|text| text.parse().ok())) {
        None | Some(Some(0)) => Ok(()),
        Some(Some(code)) => Err(KubeletError::Grpc(code)),
        Some(None) => Err(KubeletError::Malformed),
    }
}

/// Devices with their pods. The kubelet lists a device once for each NUMA node.
fn allocations(answer: &ListPodResourcesResponse) -> Allocations {
    let mut all = Vec::new();
    let keep = |text: &str| (!text.is_empty() && text.len() <= LONGEST_NAME).then(|| Arc::<str>::from(text));
    for pod in &answer.pod_resources {
        let (Some(namespace), Some(name)) = (keep(&pod.namespace), keep(&pod.name)) else { continue };
        for container in &pod.containers {
            let Some(container_name) = keep(&container.name) else { continue };
            let by_plugins = container.devices.iter().flat_map(|devices| {
                devices.device_ids.iter().map(move |id| (devices.resource_name.as_str(), id.as_str()))
            });
            let by_claims = container.dynamic_resources.iter().flat_map(|claim| &claim.claim_resources);
            let by_claims = by_claims.map(|device| (device.driver_name.as_str(), device.device_name.as_str()));
            for (resource, id) in by_plugins.chain(by_claims) {
                if let (Some(resource), Some(_)) = (keep(resource), keep(id)) {
                    all.push(Allocation {
                        namespace: Arc::clone(&namespace),
                        pod: Arc::clone(&name),
                        container: Arc::clone(&container_name),
                        resource,
                        device: device(id),
                    });
                }
            }
        }
    }
    all.sort();
    all.dedup();
    all.truncate(MOST);
    Allocations { all }
}

/// What a plugin's or driver's name for a device means: a PCI address, with dashes, after `pci-`, or an auxiliary device. A
/// plain number is a place in a shared pool to one plugin, and an IOMMU group to another: no device is known by it.
fn device(id: &str) -> AllocatedDevice {
    let lower = id.to_ascii_lowercase();
    let text = lower.strip_prefix("pci-").unwrap_or(&lower);
    let dashed = || {
        let parts: Vec<&str> = text.split('-').collect();
        match *parts {
            [domain, bus, device, function] => format!("{domain}:{bus}:{device}.{function}").parse::<PciAddress>().ok(),
            _ => None,
        }
    };
    if let Some(address) = text.parse().ok().or_else(dashed) {
        return AllocatedDevice::Pci(address);
    }
    let is_auxiliary = |(driver, number): (&str, &str)| {
        !driver.is_empty()
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && driver.contains('.')
    };
    if text.rsplit_once('.').is_some_and(is_auxiliary) {
        AllocatedDevice::Auxiliary(Arc::from(id))
    } else if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        AllocatedDevice::Shared
    } else {
        AllocatedDevice::Other
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_devices() {
        let at = |text: &str| AllocatedDevice::Pci(text.parse().unwrap());
        for (id, expected) in [
            ("0000:03:02.1", at("0000:03:02.1")),
            ("0000:3B:02.4", at("0000:3b:02.4")),
            ("0000-3b-02-4", at("0000:3b:02.4")),
            ("pci-0000-8a-00-0", at("0000:8a:00.0")),
            ("mlx5_core.sf.4", AllocatedDevice::Auxiliary(Arc::from("mlx5_core.sf.4"))),
            ("17", AllocatedDevice::Shared),
            ("GPU-0a1b2c3d-1111-4222-8333-944444444444", AllocatedDevice::Other),
            ("gpu-0", AllocatedDevice::Other),
            ("", AllocatedDevice::Other),
        ] {
            assert_eq!(device(id), expected, "{id}");
        }
    }

    #[test]
    fn messages_that_are_cut_or_compressed() {
        let whole = framed(&ListPodResourcesResponse::default());
        assert!(unframed::<ListPodResourcesResponse>(whole).is_ok());
        for bytes in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x01", b"\x01\0\0\0\0", b"\0\0\0\0\x02\x0a\x05"] {
            assert!(unframed::<ListPodResourcesResponse>(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_and_names_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), id in any::<String>()) {
            let _ = device(&id);
            let _ = unframed::<ListPodResourcesResponse>(Bytes::from(bytes.clone())).map(|answer| allocations(&answer));
            if let Ok(answer) = ListPodResourcesResponse::decode(&bytes[..]) {
                let _ = allocations(&answer);
            }
        }
    }
}
