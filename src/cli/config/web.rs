//! The `[web]` table, and the flags of the same names.

use super::reader::TableReader;
use super::schema::WebConfig;

/// Checks the table.
pub fn web(read: &TableReader<'_>, config: &WebConfig) {
    for (index, address) in config.listen_address.iter().enumerate() {
        listen_address(read, &format!("listen-address[{index}]"), address);
    }
    max_requests(read, config.max_requests);
    telemetry_path(read, config.telemetry_path.as_deref());
}

/// Checks an address to listen on: `HOST:PORT`, or `:PORT` for all addresses.
pub fn listen_address(read: &TableReader<'_>, key: &str, address: &str) {
    let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(_))) {
        read.not_allowed(key, address, "an address such as :10015, 127.0.0.1:10015 or [::1]:10015");
    }
}

/// Checks the number of concurrent requests; 0 is no limit.
pub fn max_requests(read: &TableReader<'_>, most: Option<usize>) {
    read.number("max-requests", most, 0..=100_000);
}

/// Checks the path of the metrics.
pub fn telemetry_path(read: &TableReader<'_>, path: Option<&str>) {
    // What a request line carries as it is; other bytes would come encoded, and never match.
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-._~!$&'()*+,;=:@".contains(c);
    let allowed = |path: &&str| {
        let leads_down = path.split('/').skip(1).all(|name| !matches!(name, "" | "." | ".."));
        let taken = ["/-/", "/api/"].iter().any(|taken| path.starts_with(taken));
        path.starts_with('/') && leads_down && !taken && path.chars().all(plain)
    };
    if let Some(path) = path.filter(|path| !allowed(path)) {
        read.not_allowed("telemetry-path", path, "a path such as /metrics; / alone, /-/ and /api/ are reserved");
    }
}
