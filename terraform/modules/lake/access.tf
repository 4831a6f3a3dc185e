# Who read and wrote what. S3 writes these logs only into a bucket with its own encryption, not with a key of ours.
resource "aws_s3_bucket" "access" {
  count = var.access_logs ? 1 : 0

  #checkov:skip=CKV_AWS_144:logs of access expire; they need no copy
  #checkov:skip=CKV2_AWS_62:nothing is started by an object
  #checkov:skip=CKV_AWS_18:a bucket that logs into itself never ends
  #checkov:skip=CKV_AWS_145:S3 delivers access logs only to buckets with SSE-S3
  bucket        = local.names["access"]
  force_destroy = var.force_destroy
}

resource "aws_s3_bucket_versioning" "access" {
  count = var.access_logs ? 1 : 0

  bucket = aws_s3_bucket.access[0].id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "access" {
  count = var.access_logs ? 1 : 0

  bucket = aws_s3_bucket.access[0].id
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_public_access_block" "access" {
  count = var.access_logs ? 1 : 0

  bucket                  = aws_s3_bucket.access[0].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "access" {
  count = var.access_logs ? 1 : 0

  bucket = aws_s3_bucket.access[0].id
  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_policy" "access" {
  count = var.access_logs ? 1 : 0

  bucket = aws_s3_bucket.access[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(local.tls_only["access"], [{
      Sid       = "S3DeliversLogs"
      Effect    = "Allow"
      Principal = { Service = "logging.s3.amazonaws.com" }
      Action    = "s3:PutObject"
      Resource  = "${local.arns["access"]}/*"
      Condition = {
        StringEquals = { "aws:SourceAccount" = var.context.account_id }
        ArnLike      = { "aws:SourceArn" = [local.arns["lake"], local.arns["artifacts"]] }
      }
    }])
  })

  depends_on = [aws_s3_bucket_public_access_block.access]
}

resource "aws_s3_bucket_lifecycle_configuration" "access" {
  count = var.access_logs ? 1 : 0

  bucket = aws_s3_bucket.access[0].id
  rule {
    id     = "old-logs"
    status = "Enabled"
    filter {}
    expiration {
      days = var.log_days
    }
    noncurrent_version_expiration {
      noncurrent_days = 1
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 3
    }
  }

  depends_on = [aws_s3_bucket_versioning.access]
}
