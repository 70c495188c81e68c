//! A response as it is kept: status, fields and body, byte for byte.

use bytes::Bytes;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{Response, StatusCode};

const RESPONSE: u8 = 0x71;
const TOO_LARGE: u8 = 0x72;
/// They belong to a connection and not to the response.
const OF_THE_CONNECTION: [HeaderName; 7] =
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// What is kept of a response.
#[derive(Debug, PartialEq)]
pub(super) enum Stored {
    Response {
        status: StatusCode,
        headers: HeaderMap,
        body: Bytes,
    },
    /// It was more than can be kept. The request has had its effect.
    TooLarge,
}

impl Stored {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Stored::Response { status, headers, body } = self else { return vec![TOO_LARGE] };
        let mut bytes = vec![RESPONSE];
        bytes.extend_from_slice(&status.as_u16().to_be_bytes());
        let kept = || headers.iter().filter(|(name, _)| !OF_THE_CONNECTION.contains(name));
        bytes.extend_from_slice(&length(kept().count()));
        for (name, value) in kept() {
            for part in [name.as_str().as_bytes(), value.as_bytes()] {
                bytes.extend_from_slice(&length(part.len()));
                bytes.extend_from_slice(part);
            }
        }
        bytes.extend_from_slice(body);
        bytes
    }

    /// `None` if the bytes are not a response.
    pub(super) fn decode(bytes: Vec<u8>) -> Option<Stored> {
        let bytes = Bytes::from(bytes);
        let (tag, rest) = bytes.split_first()?;
        if *tag == TOO_LARGE {
            return rest.is_empty().then_some(Stored::TooLarge);
        }
        if *tag != RESPONSE {
            return None;
        }
        let (status, mut rest) = rest.split_first_chunk::<2>()?;
        let status = StatusCode::from_u16(u16::from_be_bytes(*status)).ok()?;
        let mut headers = HeaderMap::new();
        for _ in 0..take_length(&mut rest)? {
            let name = HeaderName::from_bytes(take(&mut rest)?).ok()?;
            headers.append(name, HeaderValue::from_bytes(take(&mut rest)?).ok()?);
        }
        let body = bytes.slice_ref(rest);
        Some(Stored::Response { status, headers, body })
    }

    /// The response, or `None` if it was not kept.
    pub(super) fn response<R: From<Bytes>>(self) -> Option<Response<R>> {
        let Stored::Response { status, headers, body } = self else { return None };
        let mut response = Response::new(R::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Some(response)
    }
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

fn take_length(rest: &mut &[u8]) -> Option<usize> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    usize::try_from(u32::from_be_bytes(*length)).ok()
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(rest)?;
    let (part, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_response_is_kept_without_what_belongs_to_its_connection() {
        let mut headers = HeaderMap::new();
        headers.append("set-cookie", HeaderValue::from_static("a=1"));
        headers.append("set-cookie", HeaderValue::from_static("b=2"));
        headers.append("connection", HeaderValue::from_static("close"));
        let body = Bytes::from_static(b"\0\xffbody");
        let stored = Stored::Response { status: StatusCode::CREATED, headers: headers.clone(), body };
        let Some(Stored::Response { status, headers: kept, body }) = Stored::decode(stored.encode()) else {
            panic!("not a response");
        };
        headers.remove("connection");
        assert_eq!((status, kept, &body[..]), (StatusCode::CREATED, headers, &b"\0\xffbody"[..]));
        assert_eq!(Stored::decode(Stored::TooLarge.encode()), Some(Stored::TooLarge));
    }

    /// Stores keep this: it never changes.
    #[test]
    fn the_encoding_is_pinned() {
        let headers = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static("x"))]);
        let body = Bytes::from_static(b"ok");
        let mut stored = Stored::Response { status: StatusCode::OK, headers, body };
        assert_eq!(stored.encode(), b"\x71\0\xc8\0\0\0\0ok");
        if let Stored::Response { headers, .. } = &mut stored {
            headers.insert("a", HeaderValue::from_static("bc"));
        }
        assert_eq!(stored.encode(), b"\x71\0\xc8\0\0\0\x01\0\0\0\x01a\0\0\0\x02bcok");
    }

    proptest! {
        #[test]
        fn other_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let with_tag = [&[RESPONSE, 0, 200], &bytes[..]].concat();
            Stored::decode(bytes);
            Stored::decode(with_tag);
        }
    }
}
